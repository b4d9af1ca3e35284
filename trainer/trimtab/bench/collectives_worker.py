"""One host's part of ``trimtab bench collectives``: single exchanges of one buffer, each scheme and ratio in turn."""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product

import torch
import torch.distributed as dist

from trimtab import collectives, sparsify
from trimtab.broadcast import barrier
from trimtab.collectives.base import Exchange
from trimtab.collectives.group import Group
from trimtab.kernels.warm_up import warm_up
from trimtab.plan import Plan, elements_to_send


def main() -> None:
    """Measure every plan named on the command line; rank 0 prints ``{plan: seconds}`` as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--ratios", required=True, help="by commas")
    parser.add_argument("--collectives", required=True, help="by commas")
    parser.add_argument("--repeats", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = Group.connect()
    warm_up(torch.device("cpu"))
    seconds = {}
    for ratio, collective in product(args.ratios.split(","), args.collectives.split(",")):
        plan = Plan.parse(f"{ratio}/{collective}")
        times = [_exchange_once(group, plan, args.elements, step) for step in range(args.repeats + 1)]
        seconds[plan.name] = statistics.median(times[1:])
    if group.rank == 0:
        print(json.dumps(seconds), flush=True)
    group.close()
    # Left to the interpreter's end, one of its threads may free a tensor when there is none left: the process aborts.
    dist.destroy_process_group()


def _exchange_once(group: Group, plan: Plan, num_elements: int, step: int) -> float:
    """Seconds that the slowest rank spent sending and waiting, all ranks having begun together."""
    generator = torch.Generator().manual_seed(1000 * step + group.rank)
    grad = torch.randn(num_elements, generator=generator)
    residual, next_residual = torch.zeros_like(grad), torch.empty_like(grad)
    barrier(group)
    exchanged = (
        collectives.create(plan.collective, group)
        .exchange(
            Exchange(
                grad=grad,
                residual=residual,
                next_residual=next_residual,
                out=grad,
                segments=(0, num_elements),
                k=(elements_to_send(plan.ratio, num_elements),),
                step=step,
            ),
            sparsify.create("topk"),
        )
        .wait()
    )
    slowest = torch.tensor([exchanged.collective_seconds])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


if __name__ == "__main__":
    main()
