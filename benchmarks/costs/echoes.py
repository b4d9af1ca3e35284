"""Measure what echoes cost: the share of a core that one monitor spends on them among N workers.

    python benchmarks costs/echoes [N] [SECONDS]

One process runs worker 0's echo. Another one plays all other workers' monitors: it answers, and asks worker 0 as often
as N - 1 monitors do.

Needs nothing more; takes ten seconds.
"""

import asyncio
import multiprocessing
import random
import socket
import sys
import time

from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers.addresses import PeerAddresses
from trimtab_netmon.probing.echo_packet import REPLY, REQUEST, EchoPacket, pack, unpack
from trimtab_netmon.probing.interface import InterfaceWatch
from trimtab_netmon.probing.udp_echo import MOST_ECHOES, RATE, Echo
from trimtab_netmon.settings import Endpoint

KEY = b"key"


def others(first, ports):
    """Answer worker 0 in the name of all other workers, and ask it in their names."""

    async def play():
        loop = asyncio.get_running_loop()
        sockets = []
        for worker, port in enumerate(ports, 1):
            each = socket.socket(type=socket.SOCK_DGRAM)
            each.bind(("127.0.0.1", port))
            each.setblocking(False)
            sockets.append(each)

            def answer(each=each, worker=worker):
                packet = unpack(KEY, each.recv(1024))
                if packet is not None and packet.kind == REQUEST:
                    each.sendto(pack(KEY, packet._replace(kind=REPLY, responder=worker, quiet=True)), first)

            loop.add_reader(each, answer)
        while True:
            for worker, each in enumerate(sockets, 1):
                each.sendto(pack(KEY, EchoPacket(REQUEST, worker, 0, False, random.getrandbits(64), 0)), first)
                await asyncio.sleep(1 / min(RATE * len(sockets), MOST_ECHOES))

    asyncio.run(play())


async def cost(num_workers, ports, seconds):
    """The share of a core that worker 0 spends."""
    endpoints = tuple(Endpoint("127.0.0.1", port) for port in ports)
    interface = InterfaceWatch("lo")
    echo = Echo(
        *(0, num_workers, endpoints[0], PeerAddresses(0, endpoints, endpoints[0]), KEY, interface, Metrics()),
        on_round_trip=lambda *_: None,
        is_suspect=lambda _: False,
        capacity_to=lambda _: 1e9,
    )
    running = [asyncio.create_task(part) for part in (echo.run(), interface.run())]
    await asyncio.sleep(1)
    begun, used = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    share = (time.process_time() - used) / (time.monotonic() - begun)
    for each in running:
        each.cancel()
    return share


def main():
    num_workers, seconds = (int(each) for each in [*sys.argv[1:], "32", "10"][:2])
    ports = [40000 + worker for worker in range(num_workers)]
    playing = multiprocessing.Process(target=others, args=(("127.0.0.1", ports[0]), ports[1:]), daemon=True)
    playing.start()
    print(f"{asyncio.run(cost(num_workers, ports, seconds)):.1%} of a core for the echoes of {num_workers} workers")
    playing.kill()


if __name__ == "__main__":
    main()
