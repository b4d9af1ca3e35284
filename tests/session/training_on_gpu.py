"""One rank of trainings on a GPU that ranks share: the weights after each, to compare runs of other timing.

    python training_on_gpu.py RANK SIZE STORE TIMING DEVICE PLAN...

TIMING ``shaken``: streams fall behind and get ahead of each other at random, so that work which waits for no event
begins too early or too late. Prints one JSON line a plan: digest of the weights, losses, seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from kit.rank_pool import environment_on_one_gpu
from kit.training.engines import engine_of
from torch import nn
from trimtab.plan.fusion import cut
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab.transport.rendezvous import process_group
from trimtab.transport.worker_thread import StreamWorker
from trimtab.workloads.digits import model

STEPS, BATCH_SIZE, SIDE, CLASSES = 6, 16, 8, 10
#: Cycles of the GPU's clock, a millisecond or so.
MOST_CYCLES = 2_000_000


@contextmanager
def timing(name: str, rank: int) -> Iterator[Callable[[], None]]:
    """Within, lanes' jobs take as ``name`` says; what it gives has the present stream take a while too."""
    draw = random.Random(rank)

    def sleep() -> None:
        if name == "shaken" and draw.random() < 0.5:
            torch.cuda._sleep(draw.randrange(MOST_CYCLES))

    submit = StreamWorker.submit

    def shaken(lane: StreamWorker, job: Callable[[], Any], uses: object = ()) -> Any:
        def slow() -> Any:
            sleep()
            result = job()
            sleep()
            return result

        return submit(lane, slow, uses)

    with mock.patch.object(StreamWorker, "submit", shaken if name == "shaken" else submit):
        yield sleep


def train(group: Group, plan: Plan, device: torch.device, sleep: Callable[[], None]) -> dict[str, Any]:
    """A few steps on random images; ranks see different ones."""
    torch.manual_seed(0)
    network = model(hidden=2048).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    plan = cut(plan, [parameter.numel() for parameter in reversed(list(network.parameters()))])
    session = Session(network, optimizer, group=group, plan=plan, recorder=Recorder(None))
    draw = torch.Generator().manual_seed(group.rank)
    losses, began = [], time.perf_counter()
    for _ in range(STEPS):
        images = torch.rand(BATCH_SIZE, SIDE, SIDE, generator=draw).to(device)
        labels = torch.randint(CLASSES, (BATCH_SIZE,), generator=draw).to(device)
        sleep()
        loss = nn.functional.cross_entropy(network(images), labels)
        sleep()
        loss.backward()
        sleep()
        session.step(loss)
        losses.append(loss.item())
    engine = engine_of(session)
    engine.settle()
    weights = torch.cat([parameter.detach().flatten().cpu() for parameter in network.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    engine.close()
    return {"plan": plan.name, "digest": digest, "losses": losses, "seconds": round(time.perf_counter() - began, 2)}


def main() -> None:
    rank, size, store, name, device_type, *plans = sys.argv[1:]
    if device_type == "cuda":
        os.environ.update(environment_on_one_gpu(int(rank)))
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.cuda.set_device(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    backend = "nccl" if device_type == "cuda" else "gloo"
    process_group.initialize(backend, int(rank), int(size), 60, init_method=f"file://{store}")
    group = Group.connect(deadline=60)
    with timing(name, int(rank)) as sleep:
        for text in plans:
            print(json.dumps(train(group, Plan.parse(text), torch.device(device_type), sleep)), flush=True)
    group.close()


if __name__ == "__main__":
    main()
