"""One host's part of ``trimtab bench step``: ResNet-18 under each method in turn, median seconds a step."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchvision.models import resnet18

from trimtab.evaluation.bench.replayed import Replayed, record
from trimtab.plan.fusion import cut
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.ddp_baseline import wrap
from trimtab.session.session import Session
from trimtab.transport.group import Group

IMAGE_SIDE = 32  # the images of CIFAR, on which the papers train ResNet-18

Step = Callable[[], None]
Loss = Callable[[nn.Module], torch.Tensor]


def _ddp(hook: str, network: nn.Module, loss: Loss) -> Step:
    wrapped = wrap(network, hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(wrapped).backward()
        optimizer.step()

    return step


def _alone(network: nn.Module, loss: Loss) -> Step:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(network).backward()
        optimizer.step()

    return step


def _ours(plan: Plan, group: Group, network: nn.Module, loss: Loss) -> Step:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    session = Session(network, optimizer, group=group, plan=plan, recorder=Recorder(None))

    def step() -> None:
        loss(network).backward()
        session.step()

    return step


def _resnet(batch_size: int) -> tuple[Callable[[], nn.Module], Loss]:
    """Return how ResNet-18 on random images is made, and its loss."""
    images = torch.randn(batch_size, 3, IMAGE_SIDE, IMAGE_SIDE)
    labels = torch.randint(0, 1000, (batch_size,))
    return resnet18, lambda network: nn.functional.cross_entropy(network(images), labels)


def _replayed(batch_size: int) -> tuple[Callable[[], nn.Module], Loss]:
    """Make the model as rank 0 records it, while the others wait: layers then take as long as they took alone."""
    images, labels = torch.randn(batch_size, 3, IMAGE_SIDE, IMAGE_SIDE), torch.zeros(batch_size, dtype=torch.long)
    times = [record(resnet18(), images, labels) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(times)
    inputs = torch.zeros(1, requires_grad=True)
    return lambda: Replayed(times[0] or [], seed=dist.get_rank()), lambda network: network(inputs).sum()


def _plan(text: str, network: nn.Module) -> Plan:
    sizes = [parameter.numel() for parameter in reversed(list(network.parameters()))]
    return cut(Plan.parse(text), sizes)


def seconds_a_step(step: Callable[[], None], num_steps: int, steps_a_round: int = 1) -> float:
    """Return the median over the whole rounds that ``num_steps`` need: local steps but a round's last are short."""
    times = []
    for _ in range(ceil(num_steps / steps_a_round)):
        began = time.perf_counter()
        for _ in range(steps_a_round):
            step()
        times.append((time.perf_counter() - began) / steps_a_round)
    return statistics.median(times)


def main() -> None:
    """Measure every method named on the command line; rank 0 prints ``{method: seconds}`` as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", required=True, help="compute, ddp, ddp-fp16, ddp-powersgd, or plans, by commas")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--replay", action="store_true", help="layers sleep for as long as rank 0 recorded")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    group = Group.connect()
    torch.manual_seed(dist.get_rank())
    make, loss = (_replayed if args.replay else _resnet)(args.batch_size)
    seconds: dict[str, Any] = {}
    for method in args.methods.split(","):
        torch.manual_seed(0)
        network, steps_a_round = make(), 1
        if method == "compute":
            step = _alone(network, loss)
        elif method.startswith("ddp"):
            step = _ddp(method.removeprefix("ddp").removeprefix("-"), network, loss)
        else:
            plan = _plan(method, network)
            step, steps_a_round = _ours(plan, group, network, loss), max(1, plan.local_steps)
        seconds_a_step(step, args.warmup, steps_a_round)
        dist.barrier()
        seconds[method] = seconds_a_step(step, args.steps, steps_a_round)
        dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps(seconds), flush=True)
    group.close()
    # Left to the interpreter's end, one of its threads may free a tensor when there is none left: the process aborts.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
