"""One host's part of ``trimtab bench collectives``: single exchanges of one buffer, each scheme and ratio in turn."""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product

import torch
import torch.distributed as dist
from trimtab_api import catalogue

from trimtab import collectives, sparsify
from trimtab.broadcast import barrier
from trimtab.collectives.base import Exchange
from trimtab.collectives.group import Group
from trimtab.kernels.warm_up import warm_up
from trimtab.plan import Plan, elements_to_send
from trimtab.sparsify.base import Sent

#: Exchanges after which thresholds, regions and partitions have settled.
NUM_WARM_UP = 4
#: Gradients of a rank, which take turns: drawing another for each exchange would take longer than the exchange.
NUM_GRADIENTS = 3


def main() -> None:
    """Measure every plan named on the command line; rank 0 prints ``{plan: {select, wire}}``, in seconds, as JSON."""
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
    generator = torch.Generator().manual_seed(group.rank)
    grads = [torch.randn(args.elements, generator=generator) for _ in range(NUM_GRADIENTS)]
    seconds = {}
    for ratio, collective in product(args.ratios.split(","), args.collectives.split(",")):
        is_dense = catalogue.collectives[collective].is_dense
        plan = Plan.parse(collective if is_dense else f"{ratio}/{collective}")
        seconds[f"{ratio}/{collective}"] = _exchange(group, plan, grads, args.repeats)
    if group.rank == 0:
        print(json.dumps(seconds), flush=True)
    group.close()
    # Left to the interpreter's end, one of its threads may free a tensor when there is none left: the process aborts.
    dist.destroy_process_group()


def _exchange(group: Group, plan: Plan, grads: list[torch.Tensor], repeats: int) -> dict[str, float]:
    """Median seconds that an exchange takes the slowest rank, which all begin together: selecting; sending and waiting.

    With error feedback, and all that the scheme and the sparsifier carry.
    """
    scheme = collectives.create(plan.collective, group)
    selector = None if plan.is_dense else sparsify.create(plan.sparsifier)
    n = grads[0].numel()
    residual, next_residual, out = torch.zeros(n), torch.empty(n), torch.empty(n)
    times = []
    for step in range(NUM_WARM_UP + repeats):
        barrier(group)
        k = (elements_to_send(plan.ratio, n),)
        exchange = Exchange(grads[step % len(grads)], residual, next_residual, out, (0, n), k, step)
        exchanged = scheme.exchange(exchange, selector).wait()
        scheme.commit()
        if selector is not None:
            selector.commit([Sent(0, n, exchanged.sent)])
        residual, next_residual = next_residual, residual
        slowest = torch.tensor([exchanged.compress_seconds, exchanged.collective_seconds])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        times.append(slowest.tolist())
    select, wire = (statistics.median(part) for part in zip(*times[NUM_WARM_UP:], strict=True))
    return {"select": select, "wire": wire}


if __name__ == "__main__":
    main()
