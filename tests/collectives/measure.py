"""Measure the primitives on an emulated network, over our sockets, over Gloo's send/recv, and beside torch's own.

    sudo .venv/bin/python tests/collectives/measure.py --latency 25ms --bandwidth 1Gbps --elements 1000

Prints the median seconds of each, from the moment all ranks begin until the last has ended, beside the closed form.
docs/adr/0007-socket-transport.md says what follows from the figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from trimtab_api.catalogue import costs
from trimtab_api.units import parse_bandwidth, parse_duration

Run = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--latency", type=parse_duration, default="25ms", help="one way")
    parser.add_argument("--bandwidth", type=parse_bandwidth, default="1Gbps", help="of each host")
    parser.add_argument("--elements", type=int, default=1000, help="float32 elements of each rank")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is None:
        launch(arguments)
    else:
        measure(arguments)


def launch(arguments: argparse.Namespace) -> None:
    """Start this file once on each emulated host."""
    from trimtab_netmon.emulate import Emulator, Network, Phase

    phase = Phase(duration=3600.0, latency=arguments.latency, bandwidth=arguments.bandwidth)
    with Emulator(Network((phase,)), hosts=arguments.hosts, name="collectives") as emulator:
        command = [sys.executable, *sys.argv, "--master", emulator.hosts[0].address, "--rank"]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": emulator.hosts[0].device}
        workers = [
            subprocess.Popen(emulator.command(rank, [*command, str(rank)]), env=environment)
            for rank in range(arguments.hosts)
        ]
        for worker in workers:
            worker.wait(600)
        print(emulator.lag().describe())


def measure(arguments: argparse.Namespace) -> None:
    """Time every algorithm as one of the ranks; rank 0 prints."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = f"tcp://{arguments.master}:29500"
    dist.init_process_group("gloo", init_method=store, rank=arguments.rank, world_size=arguments.hosts)
    latency, beta = arguments.latency, 1 / arguments.bandwidth
    for name, cost, run in algorithms(arguments.rank, arguments.hosts, arguments.elements):
        run()
        seconds = statistics.median(timed(run) for _ in range(arguments.repetitions))
        if arguments.rank == 0:
            closed_form = cost.seconds(latency, beta)
            print(f"{name:40} {seconds:8.4f} s  closed form {closed_form:8.4f} s  {seconds / closed_form:5.2f}")
    dist.barrier()


def algorithms(rank: int, size: int, num_elements: int) -> Iterator[tuple[str, Any, Run]]:
    """Name, closed form, and what to run."""
    import torch
    import torch.distributed as dist
    from trimtab.transport import primitives
    from trimtab.transport.group import Group

    vector = torch.zeros(num_elements)
    data, num_bytes = vector.view(torch.uint8), 4 * num_elements
    root_data = data if rank == 0 else None
    ring, tree = costs.ring_all_reduce(num_bytes, size), costs.tree_all_reduce(num_bytes, size)
    down, gather = costs.broadcast(num_bytes, size), costs.all_gather(num_bytes, size)
    transport = Group.connect(deadline=60).transport
    yield "ours: ring all-reduce", ring, lambda: primitives.ring_all_reduce(transport, [vector])
    yield "ours: tree all-reduce", tree, lambda: primitives.tree_all_reduce(transport, [vector])
    yield "ours: broadcast", down, lambda: primitives.broadcast(transport, root_data, 0)
    yield "ours: all-gather", gather, lambda: primitives.all_gather(transport, data)
    yield "torch: all_reduce", ring, lambda: dist.all_reduce(vector)
    yield "torch: broadcast", down, lambda: dist.broadcast(vector, 0)
    gathered = [torch.empty(num_elements) for _ in range(size)]
    yield "torch: all_gather", gather, lambda: dist.all_gather(gathered, vector)


def timed(run: Run) -> float:
    """Seconds from a moment agreed on (hosts share one clock) until the last rank has ended."""
    import torch
    import torch.distributed as dist

    moment = torch.tensor(time.monotonic() + 0.3, dtype=torch.float64)
    dist.broadcast(moment, 0)
    time.sleep(max(0.0, float(moment) - time.monotonic()))
    run()
    seconds = torch.tensor(time.monotonic() - float(moment), dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


if __name__ == "__main__":
    main()
