"""Simulated GPUs, for machines without GPUs: ``--simulate 8xH100:training``.

A :class:`.machine.Machine` has the physical state of each GPU as a function of time: use, power, heat, clocks, energy,
memory, errors. :class:`.sources.nvidia.simulated.SimulatedNvml` answers from it in place of NVIDIA's library, so that
everything above the library is the same as with real GPUs.

In some scenarios the host holds the program back: :class:`.drivers.simulated.SimulatedHost` has the kernel's files of
the real host, with other CPU times, pressure and control group.
"""
