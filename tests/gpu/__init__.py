"""Tests for a machine with a real NVIDIA GPU: ``pytest tests/gpu``; elsewhere they are skipped.

They have never run on a GPU yet: written against the documentation, tried as far as simulated drivers and recorded
output go. What they find out is written to the folder that ``HARDWARE_GPU_REPORT`` names: ``report.json``, and
``nvidia.jsonl``, a capture of what the driver answered.
"""
