"""Settings of a monitor, given on its command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab_api.errors import UserError
from trimtab_api.names import MOST_WORKERS


@dataclass(frozen=True)
class Endpoint:
    """The address of one worker's monitor: gRPC on TCP and the echo on UDP."""

    host: str
    port: int

    @property
    def includes_loopback(self) -> bool:
        """True if processes beside it reach it by ``localhost``."""
        return self.host in ("localhost", "0.0.0.0") or self.host.startswith("127.")  # noqa: S104 - compared, not bound

    @property
    def loopback_or_host(self) -> str:
        """An address at which this machine reaches what listens here."""
        return "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104 - compared, not bound

    def __str__(self) -> str:
        """Return ``HOST:PORT``."""
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, field: str, default_port: int | None = None) -> Endpoint:
        """Parse ``HOST:PORT``, or ``HOST`` if there is a default port.

        Raises:
            UserError: If the text is neither.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon and default_port is not None:
            host, port = text.strip(), str(default_port)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            expected = "HOST:PORT" if default_port is None else "HOST or HOST:PORT"
            raise UserError(f"write {expected}, with a port from 1 to 65535", field=field, value=text)
        if ":" in host:
            raise UserError("is an IPv6 address; a monitor speaks IPv4 alone", field=field, value=text)
        return cls(host, int(port))


#: Numbers in a name, such as ``{0..7}``.
_NUMBERS = re.compile(r"\{(\d{1,7})\.\.(\d{1,7})\}")
_MOST_NAMES = 100_000


def written_out(names: str, field: str) -> Iterator[str]:
    """Yield the names between commas; a name with a range of numbers, such as ``a{0..2}``, is one for each.

    The names of a thousand pods, written out, are longer than one argument of a process may be.

    Raises:
        UserError: If a name or a range is wrong.
    """
    for name in names.split(","):
        numbers = _NUMBERS.search(name)
        if numbers is None:
            yield name
            continue
        first, last = int(numbers[1]), int(numbers[2])
        if not first <= last < first + _MOST_NAMES:
            raise UserError(f"write a range that rises, of at most {_MOST_NAMES} numbers", field=field, value=name)
        for number in range(first, last + 1):
            yield f"{name[: numbers.start()]}{number}{name[numbers.end() :]}"


@dataclass(frozen=True)
class Settings:
    """The settings of one monitor: its place in its job, and its budgets."""

    worker: int
    """This monitor's worker, from 0."""
    peers: tuple[Endpoint, ...]
    """Every worker's monitor in order, this one included."""
    listen: Endpoint
    """The only address that this monitor listens on."""
    interface: str
    """The network device that gradients cross."""
    probe_interval: float
    """Seconds between two bandwidth tests of the job, budget permitting."""
    probe_budget: float
    """Most of a host's time that bandwidth tests may take, on average over ten minutes."""
    metrics_port: int
    """Port of the Prometheus metrics; 0: none."""
    probe_bytes_per_day: float = 50e9
    """Most bytes that bandwidth tests may send and receive at a host in 24 hours."""
    probe: str = "auto"
    """The engine of bandwidth tests: one of `PROBES`."""
    service: str | None = None
    """DNS name of the headless Service that has the addresses of all monitors; None: each name is looked up."""
    node: str = ""
    """Name of the node that this monitor runs on, for the metrics; empty: not known."""
    zone: str = ""
    """Name of the node's zone, for the metrics; empty: not known."""

    def __post_init__(self) -> None:
        if not 0 <= self.worker < len(self.peers):
            raise UserError(
                f"must be the position, from 0, of this worker in --peers, which lists {len(self.peers)} workers",
                field="--rank",
                value=str(self.worker),
            )
        if len(self.peers) > MOST_WORKERS:
            raise UserError(
                f"must name at most {MOST_WORKERS} monitors: they measure every pair, and were proven with so many",
                field="--peers",
                value=f"{len(self.peers)} names",
            )
        if self.probe_interval < 0.1:
            raise UserError("must be at least 100ms", field="--probe-interval", value=f"{self.probe_interval:g}s")
        if not 0 < self.probe_budget <= 0.5:
            raise UserError(
                "must be more than 0 and at most 0.5", field="--probe-budget", value=f"{self.probe_budget:g}"
            )

        if not self.probe_bytes_per_day > 0:
            raise UserError("must be more than 0", field="--probe-bytes-per-day", value="0B")

    @property
    def others(self) -> list[int]:
        """Every worker but this one."""
        return [worker for worker in range(len(self.peers)) if worker != self.worker]
