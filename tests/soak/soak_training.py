"""One rank of the job that a soak trains; it has no line about checkpoints, and writes what must hold after each step.

`python soak_training.py FOLDER`: FOLDER/records/RANK-PID.jsonl gets a line a step. The file FOLDER/stop holds the step
to stop at, and FOLDER/slow-volume makes each fsync of a checkpoint take as many seconds as it holds.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import trimtab
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LEARNING_RATE = 0.02
#: Steps between two records of all sums; each step records the weights' checksum.
SUMS_EVERY = 4
#: Sums are compared by this many random projections: an error in any element changes each of them.
PROJECTIONS = 3


class Ledger:
    """This rank's gradients since the job began, summed by the script itself; checkpoints carry it."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        self.start = flat(self._parameters)
        self.gradients = torch.zeros_like(self.start)

    def of_loss(self, loss: Tensor) -> Tensor:
        """Return the gradient without the session's seeing it: hooks of ``grad`` do not run."""
        return flat(torch.autograd.grad(loss, self._parameters, retain_graph=True))

    def state_dict(self) -> dict[str, Any]:
        return {"start": self.start, "gradients": self.gradients}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start, self.gradients = state["start"].clone(), state["gradients"].clone()


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def held_back(session: trimtab.Session, model: nn.Module) -> Tensor:
    """Return all that this rank has not yet applied, in the order of the model's parameters (float64 [n])."""
    state = session.debug_state()
    total = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in model.named_parameters()}
    for held in (state.residual, state.waiting, state.arrived, state.set_aside):
        for name, tensor in held.items():
            total[name] += tensor.double()
    return flat(total.values())


def checksum(model: nn.Module) -> int:
    value = 0
    for tensor in model.parameters():
        value = zlib.crc32(tensor.detach().numpy().tobytes(), value)
    return value


def projected(vector: Tensor) -> list[float]:
    signs = torch.randint(0, 2, (PROJECTIONS, len(vector)), generator=torch.Generator().manual_seed(11)) * 2 - 1
    return [float(value) for value in signs.double() @ vector]


class Records:
    """The lines of this process."""

    def __init__(self, folder: Path, session: trimtab.Session, model: nn.Module, ledger: Ledger) -> None:
        (folder / "records").mkdir(exist_ok=True)
        self._out = (folder / "records" / f"{session.rank}-{os.getpid()}.jsonl").open("w", buffering=1)
        self._session, self._model, self._ledger = session, model, ledger
        self._attempt = zlib.crc32(os.environ["TRIMTAB_SECRET"].encode())  # drawn anew for each start of all ranks

    def write(self) -> None:
        session, model, ledger = self._session, self._model, self._ledger
        step, plan = int(session.steps), session.plan
        with session.anchor():
            weights = checksum(model)
        line: dict[str, Any] = {"time": time.monotonic(), "attempt": self._attempt, "step": step, "weights": weights}
        if step % SUMS_EVERY == 0:
            # Gradients are held back as they are, updates of local steps as changes of the weights.
            unit = LEARNING_RATE if plan.source.startswith("update") else 1.0
            line["gradients"] = projected(ledger.gradients * LEARNING_RATE)
            line["applied"] = projected(ledger.start - flat(model.parameters()))
            line["held"] = projected(held_back(session, model) * LEARNING_RATE / unit)
        self._out.write(json.dumps(line) + "\n")


def slow_fsync(folder: Path) -> None:
    """Let the volume of checkpoints be slow while FOLDER/slow-volume is there."""
    real, told = os.fsync, folder / "slow-volume"

    def fsync(descriptor: Any) -> None:
        if told.exists():
            time.sleep(float(told.read_text() or 0))
        real(descriptor)

    os.fsync = fsync


def until_stopped(folder: Path, session: trimtab.Session, loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield batches until the step that the file ``stop`` holds; it is far enough ahead for all ranks to see it."""
    for _ in session.epochs(1_000_000):
        for batch in session.batches(loader):
            yield batch
            if (folder / "stop").exists() and session.steps >= int((folder / "stop").read_text()):
                return


def main(folder: Path) -> None:
    torch.manual_seed(0)
    slow_fsync(folder)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    ledger = Ledger(model)
    session = trimtab.attach(model, optimizer, extra_state=[ledger])
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(4096, 16, generator=generator)
    data = TensorDataset(inputs, torch.randint(0, 4, (4096,), generator=generator))
    records = Records(folder, session, model, ledger)
    for x, y in until_stopped(folder, session, DataLoader(data, batch_size=8, shuffle=True)):
        loss = nn.functional.cross_entropy(model(x), y)
        gradient = ledger.of_loss(loss)
        loss.backward()
        session.step(loss)
        ledger.gradients += gradient
        if not session.in_trial:
            records.write()
    session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
