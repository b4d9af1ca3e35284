"""Times of exchanges on emulated networks, one network after another; a file keeps each as soon as it is measured.

A line of the file is what one network took, and what was measured there. A bench that is stopped goes on behind the
last line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab_api.catalogue import BYTES_PER_ELEMENT, collective_cost
from trimtab_api.errors import UserError
from trimtab_api.input_files import MAX_RECORD_BYTES
from trimtab_api.units import parse_bandwidth, parse_duration
from trimtab_netmon import emulate

from trimtab.evaluation.bench.fleet import run_on_hosts
from trimtab.process.messages import LOGGER
from trimtab.run_files.fields import WrongFieldError, mapping, number, text, whole

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


@dataclass(frozen=True)
class ExchangeTimes:
    """Seconds on one network."""

    floor: float
    """Seconds in which each rank moves 12 bytes an element."""
    plans: dict[str, dict[str, float]]
    """Seconds of ``select``, ``wire``, and the ``whole``, by ``RATIO/COLLECTIVE``."""

    @classmethod
    def from_json(cls, data: dict[str, Any], wanted: Measurement) -> ExchangeTimes:
        """Parse a line's times of each plan that is wanted. Raise KeyError or `WrongFieldError`."""
        plans = mapping(data, "plans")
        names = [f"{ratio}/{collective}" for ratio in wanted.ratios for collective in wanted.collectives]
        told = {name: mapping(plans, name) for name in names}
        return cls(
            _seconds(data, "floor"),
            {name: {part: _seconds(each, part) for part in ("select", "wire", "whole")} for name, each in told.items()},
        )


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
                file.write(json.dumps(_line(each) | {"floor": times.floor, "plans": times.plans}) + "\n")
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
    return ExchangeTimes(measured["floor"], measured["plans"])


def _seconds(data: dict[str, Any], name: str) -> float:
    seconds = number(data, name)
    if seconds == 0:
        raise WrongFieldError(name, data[name], "must be more than 0")
    return seconds


def _line(wanted: Measurement) -> dict[str, Any]:
    """Return what a line says of how it was measured."""
    return {
        "format": FORMAT,
        "ranks": wanted.ranks,
        "latency": wanted.latency,
        "bandwidth": wanted.bandwidth,
        "elements": wanted.elements,
        "repeats": wanted.repeats,
    }


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
        where = f"{path}: line {i}"
        try:
            data = json.loads(line)
            measured = _fitting(data, wanted)
            kept[measured.network] = ExchangeTimes.from_json(data, measured)
        except KeyError as error:
            raise UserError(f"is missing; {_OTHERWISE}", file=where, field=str(error.args[0])) from None
        except WrongFieldError as error:
            remedy = f"{error.remedy}; {_OTHERWISE}"
            raise UserError(remedy, file=where, field=error.name, value=str(error.value)) from None
        except (ValueError, TypeError, RecursionError):
            shown = line[:40].decode(errors="replace")
            raise UserError(f"is not a JSON object; {_OTHERWISE}", file=where, value=shown) from None
    return kept


def _fitting(data: dict[str, Any], wanted: Sequence[Measurement]) -> Measurement:
    """Return the wanted measurement that a line holds. Raise KeyError or `WrongFieldError`."""
    if data["format"] != FORMAT:
        raise WrongFieldError("format", data["format"], f"this version reads format {FORMAT}")
    network = (whole(data, "ranks"), text(data, "latency"), text(data, "bandwidth"))
    for each in wanted:
        if each.network == network:
            break
    else:
        raise WrongFieldError(
            "ranks, latency, bandwidth", ", ".join(map(str, network)), "this bench has no such network"
        )
    for field, value in _line(each).items():
        if data[field] != value:
            raise WrongFieldError(field, data[field], f"here it is {value}")
    return each
