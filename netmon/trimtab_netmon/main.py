"""The command ``trimtab-netmon``: one monitor beside each worker's trainers."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence

from trimtab_api.cli import Parser, number, reset_process_state, whole_number
from trimtab_api.errors import UserError
from trimtab_api.names import PROBES
from trimtab_api.units import parse_duration, parse_size

from trimtab_netmon.probing.interface import first_usable
from trimtab_netmon.settings import Endpoint, Settings, written_out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for a user's mistake, which is printed in one line."""
    if argv is None:
        reset_process_state()
    try:
        settings = read_settings(_parser().parse_args(argv))
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        from trimtab_netmon.server.monitor import serve

        serve(settings, _stop_on_signals)
    except (UserError, BaseExceptionGroup) as error:
        mistake = _first(error)
        if not isinstance(mistake, UserError):
            raise
        print(f"trimtab-netmon: {mistake}", file=sys.stderr)
        return 2
    return 0


def read_settings(arguments: argparse.Namespace) -> Settings:
    """Return the settings that the flags give.

    Raises:
        UserError: If a flag's value is wrong.
    """
    listen = Endpoint.parse(arguments.listen, "--listen")
    probe_interval = _parsed(parse_duration, arguments.probe_interval, "--probe-interval")
    probe_bytes = _parsed(parse_size, arguments.probe_bytes_per_day, "--probe-bytes-per-day")
    return Settings(
        worker=arguments.rank,
        peers=tuple(Endpoint.parse(name, "--peers", listen.port) for name in written_out(arguments.peers, "--peers")),
        listen=listen,
        interface=first_usable(arguments.interface),
        probe_interval=probe_interval,
        probe_budget=arguments.probe_budget,
        probe_bytes_per_day=probe_bytes,
        metrics_port=arguments.metrics_port,
        probe=arguments.probe,
        service=arguments.service,
        node=arguments.node,
        zone=arguments.zone,
    )


def _parsed(parse: Callable[[str], float], text: str, flag: str) -> float:
    """Parse a flag's text.

    Raises:
        UserError: If the text cannot be parsed; it names the flag.
    """
    try:
        return parse(text)
    except UserError as error:
        raise UserError(error.remedy, field=flag, value=error.value) from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trimtab-netmon", description=__doc__)
    serve = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "serve",
        help="measure the network and serve what was measured",
        description="Listens at --listen for gRPC (TCP) and echoes (UDP), and at a random port during each test.",
    )
    serve.add_argument(
        "--rank",
        type=whole_number("--rank", 0, 1_000_000),
        required=True,
        help="this worker's place among --peers, from 0",
    )
    serve.add_argument(
        "--peers",
        required=True,
        help="HOST[:PORT],... of every worker's monitor, this one included; a{0..2} stands for a0,a1,a2",
    )
    serve.add_argument(
        "--probe",
        choices=PROBES,
        default="auto",
        help="what sends a test's data (default: auto: iperf3 up to 10 Gbit/s, if there and fast enough, else native)",
    )
    serve.add_argument(
        "--service",
        help="headless Service with the addresses of all --peers; one lookup of it replaces those of their names",
    )
    serve.add_argument("--listen", required=True, help="ADDRESS:PORT; the monitor listens nowhere else")
    serve.add_argument(
        "--interface",
        required=True,
        help="network device that gradients cross; of several, A,B, the first with an address",
    )
    serve.add_argument("--probe-interval", default="2s", help="time between two bandwidth tests (default: 2s)")
    serve.add_argument(
        "--probe-budget",
        type=number("--probe-budget", "0.02"),
        default=0.02,
        help="share of a host's time for bandwidth tests (default: 0.02)",
    )
    serve.add_argument(
        "--probe-bytes-per-day",
        default="50GB",
        help="most that bandwidth tests may send and receive at a host in 24 hours (default: 50GB)",
    )
    serve.add_argument(
        "--metrics-port",
        type=whole_number("--metrics-port", 0, 65535),
        default=0,
        help="port of Prometheus metrics (default 0: none)",
    )
    for place in ("node", "zone"):
        serve.add_argument(f"--{place}", default="", help=f"name of this monitor's {place}, for the metrics")
    return parser


def _stop_on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop)


def _first(error: BaseException) -> BaseException:
    """Return the first error of parts that ran side by side."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


if __name__ == "__main__":
    sys.exit(main())
