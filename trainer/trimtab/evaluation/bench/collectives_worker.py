"""One host's part of ``trimtab bench collectives``: single exchanges of one buffer, each scheme and ratio in turn."""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product
from time import monotonic, perf_counter, sleep

import torch
import torch.distributed as dist
from trimtab_api import catalogue

from trimtab import collectives, sparsifiers
from trimtab.collectives.base import Exchange
from trimtab.kernels.warm_up import warm_up
from trimtab.plan.plan import Plan, elements_to_send
from trimtab.sparsifiers.base import Sent
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import barrier, broadcast_json

#: How far ahead a start is set: barriers, in one of which the last rank has left the barrier before and in another of
#: which all are told; and seconds more for ranks that wait for a processor.
BARRIERS_AHEAD, SECONDS_AHEAD = 2.0, 0.01
#: Gradients of a rank, which take turns: drawing another for each exchange would take longer than the exchange.
NUM_GRADIENTS = 3


def main() -> None:
    """Measure every plan named on the command line.

    Rank 0 prints ``{"floor": F, "plans": {plan: {"select": S, "wire": W, "whole": T}}}``, in seconds, as JSON.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--ratios", required=True, help="by commas")
    parser.add_argument("--collectives", required=True, help="by commas")
    parser.add_argument("--warm-up", type=int, required=True, help="exchanges that are not counted")
    parser.add_argument("--repeats", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group = Group.connect()
    warm_up(torch.device("cpu"))
    generator = torch.Generator().manual_seed(group.rank)
    start = Start(group)
    grads = [torch.randn(args.elements, dtype=torch.float32, generator=generator) for _ in range(NUM_GRADIENTS)]
    seconds = {}
    for ratio, collective in product(args.ratios.split(","), args.collectives.split(",")):
        is_dense = catalogue.collectives[collective].is_dense
        plan = Plan.parse(collective if is_dense else f"{ratio}/{collective}")
        seconds[f"{ratio}/{collective}"] = _exchange(group, start, plan, grads, args.warm_up, args.repeats)
    floor = _floor(start, grads[0], args.repeats)
    if group.rank == 0:
        print(json.dumps({"floor": floor, "plans": seconds}), flush=True)
    group.close()
    # Left to the interpreter's end, one of its threads may free a tensor when there is none left: the process aborts.
    dist.destroy_process_group()


class Start:
    """Has all ranks begin at one time, by the clock that hosts of the emulator share.

    A barrier alone does not: the rank that comes last has heard of all others, and leaves it some messages before them.
    Where every exchange then waited for that, schemes whose ranks all meet at once seemed to take a message more.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        barrier(group)
        began = monotonic()
        barrier(group)
        self._ahead = BARRIERS_AHEAD * (monotonic() - began) + SECONDS_AHEAD

    def wait(self) -> None:
        """Wait until all ranks have come, and then until the time that rank 0 sets."""
        barrier(self._group)
        begin: float = broadcast_json(self._group, monotonic() + self._ahead, json.loads)
        sleep(max(0.0, begin - monotonic()))


def _exchange(
    group: Group, start: Start, plan: Plan, grads: list[torch.Tensor], num_warm_up: int, repeats: int
) -> dict[str, float]:
    """Return the slowest rank's median seconds of an exchange: selecting; sending and waiting; both.

    All ranks begin together. With error feedback, and all that the scheme and the sparsifier carry.
    """
    scheme = collectives.create(plan.collective, group)
    selector = None if plan.is_dense else sparsifiers.create(plan.sparsifier)
    n = grads[0].numel()
    residual, next_residual, out = (torch.zeros(n, dtype=torch.float32) for _ in range(3))
    times = []
    for step in range(num_warm_up + repeats):
        start.wait()
        k = (elements_to_send(plan.ratio, n),)
        exchange = Exchange(grads[step % len(grads)], residual, next_residual, out, (0, n), k, step)
        exchanged = scheme.exchange(exchange, selector).wait()
        scheme.commit()
        if selector is not None:
            selector.commit([Sent(0, n, exchanged.sent)])
        residual, next_residual = next_residual, residual
        select, wire = exchanged.compress_seconds, exchanged.collective_seconds
        times.append([select, wire, select + wire])
    medians = map(statistics.median, zip(*_slowest(times[num_warm_up:]), strict=True))
    return dict(zip(("select", "wire", "whole"), medians, strict=True))


def _floor(start: Start, grad: torch.Tensor, repeats: int) -> float:
    """Return the slowest rank's median seconds of moving 12 bytes an element at once: no selection takes less."""
    residual, next_residual = torch.zeros_like(grad), torch.empty_like(grad)
    times = []
    for _ in range(1 + repeats):
        start.wait()
        began = perf_counter()
        torch.add(grad, residual, out=next_residual)
        times.append([perf_counter() - began])
    return statistics.median(seconds for (seconds,) in _slowest(times[1:]))


def _slowest(times: list[list[float]]) -> list[list[float]]:
    """Return the most that any rank took, of each; gathered once, since that takes as long as an exchange."""
    most = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    taken: list[list[float]] = most.tolist()
    return taken


if __name__ == "__main__":
    main()
