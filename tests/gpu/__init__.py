"""Tests for a machine with a real NVIDIA GPU: ``pytest tests/gpu``; elsewhere they are skipped.

They have not been run on a GPU yet. They are written from the documentation and tried on simulated drivers and recorded
output. Their results are written to the folder in ``HARDWARE_GPU_REPORT``: ``report.json``, and ``nvidia.jsonl``, a
capture of the driver's answers.
"""
