"""Times of exchanges on emulated networks, one network after another; a file keeps each as soon as it is measured.

A line of the file is what one network took, and what was measured there. A bench that is stopped goes on behind the
last line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta
from trimtab_api.catalogue import BYTES_PER_ELEMENT, collective_cost
from trimtab_api.errors import UserError
from trimtab_api.input_files import MAX_RECORD_BYTES
from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon import emulate

from trimtab.evaluation.bench.fleet import run_on_hosts
from trimtab.process.messages import LOGGER
from trimtab.run_files.json_files import Record, parse_object, read_record

#: A time that was measured.
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
#: Ranks, latency and bandwidth, these two as they are written.
Network = tuple[int, str, str]
#: Version of a file's lines: another number stands for other fields, or for figures of another meaning.
FORMAT = 1
_OTHERWISE = "remove the line, or name another file"
#: Exchanges after which thresholds, regions and partitions have settled.
NUM_WARM_UP = 4
#: Seconds after which a network is given up: for the ranks to begin, compiling included; of each exchange beside its
#: closed form, with the gathering of its times; and what multiplies the closed form.
START_SECONDS, MORE_SECONDS, SLOWNESS = 90.0, 0.5, 2.0


@dataclass(frozen=True)
class Measurement:
    """A measurement to make on one network, as JSON data: each field is one of a line."""

    ranks: int
    latency: str
    bandwidth: str
    elements: int
    repeats: int
    ratios: tuple[str, ...]
    collectives: tuple[str, ...]

    @property
    def network(self) -> Network:
        """The key that tells one network from another."""
        return (self.ranks, self.latency, self.bandwidth)

    @property
    def plans(self) -> list[str]:
        """``RATIO/COLLECTIVE`` of each exchange."""
        return [f"{ratio}/{collective}" for ratio in self.ratios for collective in self.collectives]

    @property
    def most_seconds(self) -> float:
        """Seconds after which to give up, by the closed forms."""
        alpha, beta = parse_duration(self.latency), 1 / parse_bandwidth(self.bandwidth)
        exchanges = [
            collective_cost(collective, self.elements * BYTES_PER_ELEMENT, float(ratio), self.ranks)
            for ratio in self.ratios
            for collective in self.collectives
        ]
        each = sum(MORE_SECONDS + SLOWNESS * exchange.seconds(alpha, beta) for exchange in exchanges)
        return START_SECONDS + (NUM_WARM_UP + self.repeats) * each

    def __str__(self) -> str:
        return f"{self.ranks} hosts, {self.latency}, {self.bandwidth}"


class PlanTimes(Record, frozen=True):
    """Seconds of an exchange under one plan: to select, on the wire, and all of it."""

    select: Seconds
    wire: Seconds
    whole: Seconds


class ExchangeTimes(Record, frozen=True):
    """Seconds on one network, and how they were measured: a line of the file."""

    format: int
    ranks: int
    latency: str
    bandwidth: str
    elements: int
    repeats: int
    floor: Seconds
    """Seconds in which each rank moves 12 bytes an element."""
    plans: dict[str, PlanTimes]
    """By ``RATIO/COLLECTIVE``."""

    @property
    def network(self) -> Network:
        """The key that tells one network from another."""
        return (self.ranks, self.latency, self.bandwidth)


def measure(wanted: Sequence[Measurement], out: Path | None, most: int | None) -> list[ExchangeTimes]:
    """Return the times of each network, in order, up to the first that is not measured yet.

    What the file ``out`` holds is not measured again; each network is added to it when it is done. stderr tells how far
    it is.

    Args:
        wanted: What to measure.
        out: Where times are kept.
        most: How many networks to measure now; None: all.

    Raises:
        UserError: A rank fails, or the file holds what is not wanted.
    """
    kept = _read(out, wanted) if out is not None else {}
    missing = [each for each in wanted if each.network not in kept]
    for number_of, each in enumerate(missing[:most], 1):
        LOGGER.info(f"{each}: measuring, {number_of} of {len(missing[:most])}, {each.most_seconds:.0f} s at most")
        began = time.monotonic()
        kept[each.network] = times = _measure(each)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(times.to_json()) + "\n")
        LOGGER.info(f"{each}: measured in {time.monotonic() - began:.0f} s")
    return [kept[each.network] for each in wanted if each.network in kept]


def _measure(wanted: Measurement) -> ExchangeTimes:
    phase = emulate.Phase(3600.0, parse_duration(wanted.latency), parse_bandwidth(wanted.bandwidth))
    measured = run_on_hosts(
        emulate.Network(phases=(phase,)),
        wanted.ranks,
        "trimtab.evaluation.bench.collectives_worker",
        [
            *("--elements", str(wanted.elements), "--ratios", ",".join(wanted.ratios)),
            *("--collectives", ",".join(wanted.collectives)),
            *("--warm-up", str(NUM_WARM_UP), "--repeats", str(wanted.repeats)),
        ],
        wanted.most_seconds,
    )
    return ExchangeTimes.from_json(
        {
            "format": FORMAT,
            "ranks": wanted.ranks,
            "latency": wanted.latency,
            "bandwidth": wanted.bandwidth,
            "elements": wanted.elements,
            "repeats": wanted.repeats,
            "floor": measured["floor"],
            "plans": measured["plans"],
        }
    )


def _read(path: Path, wanted: Sequence[Measurement]) -> dict[Network, ExchangeTimes]:
    """Read a file's times, by network; the file is made where there is none.

    Raises:
        UserError: Names the line and the first field that does not fit.
    """
    try:
        with path.open("a+b") as file:  # before anything is measured that could not be kept
            file.seek(0)
            lines = file.read(MAX_RECORD_BYTES + 1).splitlines()
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror}); name another file", file=str(path)) from None
    kept = {}
    for i, line in enumerate(lines, 1):
        times = _parse(line, f"{path}: line {i}", wanted)
        kept[times.network] = times
    return kept


def _parse(line: bytes, where: str, wanted: Sequence[Measurement]) -> ExchangeTimes:
    """Return the times in a line. Raise `UserError` where they are not of one of the measurements that are wanted."""

    def refused(remedy: str, field: str, value: object = "") -> UserError:
        return UserError(f"{remedy}; {_OTHERWISE}", file=where, field=field, value=str(value))

    data = parse_object(line, where, _OTHERWISE)
    if data.get("format") != FORMAT:
        raise refused(f"this version reads format {FORMAT}", "format", data.get("format"))
    times = read_record(ExchangeTimes, data, where, _OTHERWISE)
    measurement = next((each for each in wanted if each.network == times.network), None)
    if measurement is None:
        network = ", ".join(map(str, times.network))
        raise refused("this bench has no such network", "ranks, latency, bandwidth", network)
    for field in ("elements", "repeats"):
        if getattr(times, field) != getattr(measurement, field):
            raise refused(f"here it is {getattr(measurement, field)}", field, getattr(times, field))
    for plan in measurement.plans:
        if plan not in times.plans:
            raise refused("is missing", plan)
    return times
