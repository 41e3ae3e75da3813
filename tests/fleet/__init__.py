"""A fleet in small: agents, gateways, databases, Kubernetes and SLURM, with real programs: `python -m tests.fleet`."""
