#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --job-name=train
# One process per node reports the node; every rank reports itself, with its rank in the resource.
export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4317
export OTEL_SERVICE_NAME=train OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=hardware_job
export OTEL_METRIC_EXPORT_INTERVAL=15000
srun opentelemetry-instrument python train.py
