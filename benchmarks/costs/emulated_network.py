"""Measure the emulator against ping and iperf3, all hosts sending in a ring and every core kept busy; prints a table.

    sudo .venv/bin/python benchmarks costs/emulated_network

Needs root, /dev/net/tun, iperf3 and ping; takes three minutes.
"""

from __future__ import annotations

import argparse

from all_hosts_send import measure, steady
from results import record
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration
from trimtab_netmon.emulate import Emulator, emulator

CASES = [
    (4, "500us", "1Gbps"),
    (4, "1ms", "1Gbps"),
    (4, "25ms", "1Gbps"),
    (4, "2ms", "100Mbps"),
    (8, "1ms", "200Mbps"),
    (8, "25ms", "200Mbps"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mtu", type=int, default=emulator.MTU, help="another packet size than the emulator's own")
    parser.add_argument("--case", type=int, action="append", help="only this row of the table, from 0")
    arguments = parser.parse_args()
    emulator.MTU = arguments.mtu
    columns = ["hosts", "latency", "bandwidth", "ping, idle", "ping, full load", "a host receives"]
    columns += ["relay", "iperf3 pair", "lag p99.9 / max", "valid"]
    print(f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", sep="\n")
    bandwidth_errors, latency_errors = [], []
    for num_hosts, latency, bandwidth in [CASES[i] for i in arguments.case or range(len(CASES))]:
        with Emulator(steady(latency, bandwidth), hosts=num_hosts, name="measure") as network:
            figures = measure(network)
        asked = parse_bandwidth(bandwidth)
        bandwidth_errors += [abs(got / asked - 1) for got in (figures.slowest, figures.fastest)]
        latency_errors.append(abs(figures.ping_full - 2 * parse_duration(latency)))
        lag = figures.report.packet_lag
        print(
            f"| {num_hosts} | {latency} | {bandwidth} | {format_duration(figures.ping_idle)} "
            f"| {format_duration(figures.ping_full)} "
            f"| {format_bandwidth(figures.slowest)} to {format_bandwidth(figures.fastest)} "
            f"| {figures.relay_cpu:.2f} cores | {figures.endpoint_cpu:.2f} cores "
            f"| {format_duration(lag.p999)} / {format_duration(lag.max)} | {'yes' if figures.report.valid else 'no'} |",
            flush=True,
        )
    record("emulator-bandwidth", 100 * max(bandwidth_errors))
    record("emulator-latency", 1e3 * max(latency_errors))


if __name__ == "__main__":
    main()
