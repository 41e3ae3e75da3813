#!/bin/sh
# Prolog of slurmd: writes which job was given which GPU, in a file for each GPU, with the id of a job in each line. These
# are the files of dcgm-exporter (--hpc-job-mapping-dir). In slurm.conf, with slurm-epilog.sh beside it:
#
#     Prolog=/etc/slurm/slurm-prolog.sh
#     Epilog=/etc/slurm/slurm-epilog.sh
#
# It always succeeds: SLURM drains a node whose prolog fails.
folder=${DCGM_HPC_JOB_MAPPING_DIR:-/run/gpu-jobs}
mkdir -p -m 755 "$folder"
command exec 9>"$folder.lock" && flock -w 10 9 # without "command", a failure ends a POSIX shell
for gpus in $(echo "$SLURM_JOB_GPUS" | tr , ' '); do
    for gpu in $(seq "${gpus%-*}" "${gpus#*-}"); do # a number, or a range
        echo "$SLURM_JOB_ID" >>"$folder/$gpu"
    done
done
exit 0
