"""One rank of `checkpoints.py`: ResNet-18 trains, and is saved by Trimtab and by torch's own library in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torchvision.models import resnet18
from trimtab.checkpoint.settings import CheckpointSettings
from trimtab.plan.fusion import cut
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.options import SessionOptions
from trimtab.session.session import Session
from trimtab.transport.group import Group

PLAN = "0.01/all-gather"


class Rank:
    """What one rank trains, and how long its steps take."""

    def __init__(self, folder: Path, batch: int, pixels: int) -> None:
        torch.manual_seed(0)
        self.model = resnet18()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        sizes = [parameter.numel() for parameter in reversed(list(self.model.parameters()))]
        self.inputs, self.labels = torch.randn(batch, 3, pixels, pixels), torch.randint(1000, (batch,))
        self.folder = folder
        self.session = Session(
            self.model,
            self.optimizer,
            group=Group.connect(),
            plan=cut(Plan.parse(PLAN), sizes),
            recorder=Recorder(None),
            options=SessionOptions(),
            checkpoints=CheckpointSettings(str(folder / "trimtab"), "benchmark", seconds=1e9, keep=1),
        )

    def steps(self, num: int) -> list[float]:
        """Take steps, and return the seconds of each."""
        return [timed(self._step) for _ in range(num)]

    def _step(self) -> None:
        loss = nn.functional.cross_entropy(self.model(self.inputs), self.labels)
        loss.backward()
        self.session.step(loss)

    def saved_by_trimtab(self, number: int) -> tuple[float, Callable[[], float]]:
        """Begin to save; return the pause, and what waits for the end and returns the seconds of writing."""
        pause = timed(lambda: self.session.checkpoint(wait=False))
        writer = self.session._training.checkpointing._writer

        def written() -> float:
            assert writer.wait(300), "the checkpoint was not written"
            assert writer.problem is None, writer.problem
            return float(writer.seconds)

        return pause, written

    def saved_by_torch(self, number: int) -> tuple[float, Callable[[], float]]:
        """Do the same by torch's."""
        ended: list[float] = []
        began = time.monotonic()

        def save() -> Any:
            model, optimizer = get_state_dict(self.model, self.optimizer)
            at = self.folder / "torch" / str(number)
            future = dcp.async_save({"model": model, "optimizer": optimizer}, checkpoint_id=str(at))
            future.add_done_callback(lambda _: ended.append(time.monotonic()))
            return future

        futures: list[Any] = []
        pause = timed(lambda: futures.append(save()))

        def written() -> float:
            futures[0].result(timeout=300)
            return ended[0] - began

        return pause, written


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that ``act`` takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure(rank: int, size: int, folder: Path, batch: int, pixels: int, rounds: int, steps: int) -> dict[str, Any]:
    """Train and save in turns; return the medians of this rank."""
    torch.set_num_threads(1)
    own = Rank(folder, batch, pixels)
    own.steps(4)
    plain: list[float] = []
    idle: list[float] = []
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        found = found if number > 1 else {}  # the first round warms up
        processor = time.process_time()
        plain = [*plain, *own.steps(steps)] if number else own.steps(1)[:0]
        idle.append(time.process_time() - processor)
        for name, save in (("trimtab", own.saved_by_trimtab), ("torch", own.saved_by_torch)):
            own.session.barrier()
            processor = time.process_time()
            pause, written = save(number)
            beside = own.steps(steps)
            kept = found.setdefault(name, {"pause": [], "write": [], "beside": [], "processor": []})
            kept["pause"].append(pause)
            kept["write"].append(written())
            kept["beside"].append(sum(beside) / steps)
            kept["processor"].append(time.process_time() - processor)
            own.session.barrier()
    return {"step": statistics.median(plain), "processor": statistics.median(idle[1:]), **found}


def resumed(rank: int, size: int, folder: Path, batch: int, pixels: int) -> dict[str, float]:
    """Return the seconds in which each brings back what it saved last, into a model that is there already."""
    torch.set_num_threads(1)
    own = Rank(folder / "none", batch, pixels)
    own.session.close()
    without = timed(lambda: Rank(folder / "none", batch, pixels).session.close())
    with_one = timed(lambda: Rank(folder, batch, pixels).session.close())
    model, optimizer = get_state_dict(own.model, own.optimizer)
    newest = max((folder / "torch").iterdir(), key=lambda path: int(path.name))
    by_torch = timed(lambda: dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=str(newest)))
    return {"trimtab": with_one - without, "torch": by_torch}
