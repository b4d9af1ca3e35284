"""A training script without a line about checkpoints; rank 1 ends it once, in the midst of the second epoch.

`python stopping_training.py WEIGHTS MARK SIGNAL`: at step 11 rank 1 sends itself the signal, unless the file MARK is
there, which it makes. Rank 0 writes the final weights. Where checkpoints are in memory, rank 1 first waits for one,
and kills the keeper of its worker.
"""

import os
import sys
import time
from pathlib import Path

import psutil
import torch
import trimtab
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trimtab.checkpoint.keeper.client import KeeperClient
from trimtab.checkpoint.keeper.memory_store import MemoryStore
from trimtab.checkpoint.manifest import saved


def lose_keeper(addresses: list[str]) -> None:
    """Kill the keeper of worker 1, once a checkpoint is whole in memory."""
    store = MemoryStore([*map(KeeperClient, range(len(addresses)), addresses)], 1, print)
    deadline = time.monotonic() + 60
    while not saved(store) and time.monotonic() < deadline:
        time.sleep(0.02)
    (keeper,) = [process for process in psutil.process_iter() if addresses[1] in process.cmdline()]
    keeper.kill()


def main(weights: Path, mark: Path, signal_number: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    session = trimtab.attach(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(128, 8, generator=generator), torch.randint(0, 2, (128,), generator=generator))
    for _ in session.epochs(4):
        for inputs, labels in session.batches(DataLoader(data, batch_size=8, shuffle=True)):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            session.step(loss)
            if session.rank == 1 and session.steps == 11 and not mark.exists():
                mark.touch()
                if keepers := os.environ.get("TRIMTAB_KEEPERS"):
                    lose_keeper(keepers.split(","))
                os.kill(os.getpid(), signal_number)
    if session.is_main:
        torch.save([parameter.detach() for parameter in model.parameters()], weights)
    session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
