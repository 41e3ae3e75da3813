"""A rank of torchrun, with an all-reduce and two DataLoader workers."""

from __future__ import annotations

import torch
from tests.slow.launchers.apps.role import present, wait
from torch import distributed
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):  # type: ignore[misc] # torch need not be installed
    """A hundred numbers."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    present("rank")
    loader = DataLoader(Numbers(), batch_size=10, num_workers=2, persistent_workers=True)
    total = torch.zeros(1)
    for batch in loader:
        total += batch.sum()
    distributed.all_reduce(total)
    assert total.item() == 4950 * distributed.get_world_size()
    wait()
    distributed.barrier()
    distributed.destroy_process_group()
