"""One host's part of ``trimtab bench step``: ResNet-18 under each method in turn, median seconds a step."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

from trimtab.collectives.group import Group
from trimtab.fusion import cut
from trimtab.plan import Plan
from trimtab.records.recorder import Recorder
from trimtab.session import Session

IMAGE_SIDE = 32  # the images of CIFAR, on which the papers train ResNet-18
#: PowerSGD over Gloo needs one bucket: with several, its collectives cross.
ONE_BUCKET_MB = 1000

Step = Callable[[], None]


def _loss(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(network(images), labels)


def _ddp(images: torch.Tensor, labels: torch.Tensor, hook: str, network: nn.Module) -> Step:
    wrapped = DistributedDataParallel(network, bucket_cap_mb=ONE_BUCKET_MB if hook == "powersgd" else 25)
    if hook == "fp16":
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        _loss(wrapped, images, labels).backward()
        optimizer.step()

    return step


def _alone(images: torch.Tensor, labels: torch.Tensor, network: nn.Module) -> Step:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        _loss(network, images, labels).backward()
        optimizer.step()

    return step


def _ours(images: torch.Tensor, labels: torch.Tensor, plan: Plan, group: Group, network: nn.Module) -> Step:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    session = Session(network, optimizer, group=group, plan=plan, recorder=Recorder(None))

    def step() -> None:
        _loss(network, images, labels).backward()
        session.step()

    return step


def _plan(text: str, network: nn.Module) -> Plan:
    sizes = [parameter.numel() for parameter in reversed(list(network.parameters()))]
    return cut(Plan.parse(text), sizes)


def main() -> None:
    """Measure every method named on the command line; rank 0 prints ``{method: seconds}`` as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", required=True, help="compute, ddp, ddp-fp16, ddp-powersgd, or plans, by commas")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    group = Group.connect()
    torch.manual_seed(dist.get_rank())
    images = torch.randn(args.batch_size, 3, IMAGE_SIDE, IMAGE_SIDE)
    labels = torch.randint(0, 1000, (args.batch_size,))
    seconds: dict[str, Any] = {}
    for method in args.methods.split(","):
        torch.manual_seed(0)
        network = resnet18()
        if method == "compute":
            step = _alone(images, labels, network)
        elif method.startswith("ddp"):
            step = _ddp(images, labels, method.removeprefix("ddp").removeprefix("-"), network)
        else:
            step = _ours(images, labels, _plan(method, network), group, network)
        for _ in range(args.warmup):
            step()
        times = []
        dist.barrier()
        for _ in range(args.steps):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        dist.barrier()
        seconds[method] = statistics.median(times)
    if dist.get_rank() == 0:
        print(json.dumps(seconds), flush=True)
    group.close()
    # Left to the interpreter's end, one of its threads may free a tensor when there is none left: the process aborts.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
