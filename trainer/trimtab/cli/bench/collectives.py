"""``trimtab bench collectives``: whether the cost model predicts which collective is fastest.

The model is calibrated on four cells (latency, bandwidth, ratio) and predicts the others. A cell whose two fastest
collectives are within a tenth of each other is not counted.

``--all`` compares every sparse scheme, in the cells that do not take long.

``--out`` keeps each network in a file as soon as it is measured, and does not measure again what the file holds;
``--networks`` measures some of them, and leaves the others to the next run.

``--exchanges`` times whole exchanges of every scheme instead, selecting included, among six hosts: beside SparDL's, and
beside what the closed form says once its overheads are known, with the time that 12 bytes an element take.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_api.catalogue import BYTES_PER_ELEMENT, Cost, collective_cost, collectives
from trimtab_api.cli import whole_number
from trimtab_api.errors import UserError
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration

from trimtab.control.cost_model.overheads import Overheads
from trimtab.process.messages import LOGGER

if TYPE_CHECKING:
    from trimtab.evaluation.bench.exchange_times import ExchangeTimes

NUM_ELEMENTS = 4_000_000
RATIOS = ("0.1", "0.01", "0.001")
COLLECTIVES = tuple(row.name for row in collectives.rows() if row.is_representative)
#: (latency, bandwidth) of the networks measured, by number of hosts. The emulator keeps up with 1 Gbit/s for 4 hosts
#: and 200 Mbit/s for 8.
NETWORKS = {
    4: (("1ms", "1Gbps"), ("5ms", "1Gbps"), ("25ms", "1Gbps"), ("1ms", "100Mbps"), ("10ms", "100Mbps")),
    8: (("1ms", "200Mbps"), ("25ms", "200Mbps"), ("5ms", "50Mbps")),
}
#: Cells that the model may learn from: (N, latency, bandwidth, ratio).
CALIBRATION = (
    (4, "1ms", "1Gbps", "0.1"),
    (4, "25ms", "1Gbps", "0.001"),
    (4, "10ms", "100Mbps", "0.01"),
    (8, "1ms", "200Mbps", "0.01"),
)
#: Ratios that ``--all`` compares among so many hosts; a tenth among eight would take minutes a cell.
ALL_RATIOS = {4: ("0.1", "0.01", "0.001"), 8: ("0.01", "0.001")}
CLEAR_MARGIN = 1.10
#: Settings of ``--exchanges``: hosts, networks judged, those that the model learns from, and the ratio.
EXCHANGE_HOSTS, EXCHANGE_RATIO = 6, "0.01"
EXCHANGE_NETWORKS = (("0.5ms", "200Mbps"), ("5ms", "200Mbps"))
EXCHANGE_CALIBRATION = (("2ms", "100Mbps"), ("15ms", "200Mbps"))
#: Every sparse scheme, and the options that change what it costs.
ALL_COLLECTIVES = tuple(row.name for row in collectives.rows() if not row.is_dense)
EXCHANGE_COLLECTIVES = (
    *ALL_COLLECTIVES,
    "all-gather:rounds=doubling",
    "spardl:teams=2",
    "spardl:teams=3",
)
BESIDE = "spardl"


@dataclass(frozen=True)
class Cell:
    """One network at one ratio: the seconds of an exchange, by collective."""

    num_ranks: int
    latency: str
    bandwidth: str
    ratio: str
    measured: dict[str, float]

    @property
    def key(self) -> tuple[int, str, str, str]:
        """The name of the cell."""
        return (self.num_ranks, self.latency, self.bandwidth, self.ratio)

    @property
    def fastest(self) -> str:
        """The collective measured fastest."""
        return min(self.measured, key=self.measured.__getitem__)

    @property
    def is_clear(self) -> bool:
        """True if the two fastest differ by more than a tenth."""
        first, second = sorted(self.measured.values())[:2]
        return second > CLEAR_MARGIN * first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--repeats", type=whole_number("--repeats", 1, 1000), default=7, help="exchanges measured in each cell (7)"
    )
    parser.add_argument("--all", action="store_true", help="compare every sparse scheme, in fewer cells")
    parser.add_argument(
        "--exchanges", action="store_true", help="time whole exchanges of every scheme among six hosts instead"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="keep each network here when it is measured; those kept are not again"
    )
    parser.add_argument(
        "--networks", type=whole_number("--networks", 1, 1000), help="measure at most so many now, and keep them (all)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure what is not kept yet; once all of it is, calibrate, judge and print."""
    if args.networks is not None and args.out is None:
        raise UserError("needs --out FILE, which keeps what is measured", field="--networks", value=str(args.networks))
    return _run_exchanges(args) if args.exchanges else _run_grid(args)


def _run_grid(args: argparse.Namespace) -> int:
    """Measure every cell; the model learns from four of them, and is judged by the rest."""
    networks = [(num_ranks, *network) for num_ranks, some in NETWORKS.items() for network in some]
    names = ALL_COLLECTIVES if args.all else COLLECTIVES
    ratios = [ALL_RATIOS[num_ranks] if args.all else RATIOS for num_ranks, *_ in networks]
    times = _measure(args, networks, ratios, names)
    if times is None:
        return 0
    cells = [
        Cell(*network, ratio, {name: measured.plans[f"{ratio}/{name}"].wire for name in names})
        for network, some, measured in zip(networks, ratios, times, strict=True)
        for ratio in some
    ]
    model = Overheads()
    for cell in cells:
        if cell.key in CALIBRATION:
            for collective, seconds in cell.measured.items():
                _learn(model, cell, collective, seconds, args.repeats)
    judged = [_judge(cell, model) for cell in cells if cell.key not in CALIBRATION]
    clear = [each for each in judged if each["clear"]]
    regrets = [each["regret"] for each in judged]
    summary = {
        "elements": NUM_ELEMENTS,
        "calibration_cells": len(cells) - len(judged),
        "cells": judged,
        "clear_cells": len(clear),
        "right": sum(each["predicted"] == each["fastest"] for each in clear),
        "mean_regret": prod(regrets) ** (1 / len(regrets)),
        "worst_regret": max(regrets),
    }
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        _print(summary)
    return 0


def _run_exchanges(args: argparse.Namespace) -> int:
    """Measure whole exchanges, after calibration on other networks; one object a network and scheme."""
    model = Overheads()
    networks = [(EXCHANGE_HOSTS, *network) for network in (*EXCHANGE_CALIBRATION, *EXCHANGE_NETWORKS)]
    times = _measure(args, networks, [(EXCHANGE_RATIO,)] * len(networks), EXCHANGE_COLLECTIVES)
    if times is None:
        return 0
    num_learned = len(EXCHANGE_CALIBRATION)
    for network, measured in zip(networks[:num_learned], times[:num_learned], strict=True):
        for name in EXCHANGE_COLLECTIVES:
            cell = Cell(*network, EXCHANGE_RATIO, {})
            seconds = measured.plans[f"{EXCHANGE_RATIO}/{name}"].wire
            _learn(model, cell, name, seconds, args.repeats)
    lines: list[dict[str, Any]] = []
    for network, measured in zip(networks[num_learned:], times[num_learned:], strict=True):
        cell, floor = Cell(*network, EXCHANGE_RATIO, {}), measured.floor
        beside = measured.plans[f"{EXCHANGE_RATIO}/{BESIDE}"].whole
        for name in EXCHANGE_COLLECTIVES:
            one = measured.plans[f"{EXCHANGE_RATIO}/{name}"]
            predicted = model.seconds(name, _cost(cell, name), *_alpha_beta(cell))
            lines.append(
                {
                    "latency": parse_duration(cell.latency),
                    "bandwidth": parse_bandwidth(cell.bandwidth),
                    "collective": name,
                    "select_seconds": one.select,
                    "wire_seconds": one.wire,
                    "whole_seconds": one.whole,
                    "predicted_seconds": predicted,
                    "floor_seconds": floor,
                    "over_prediction": one.whole / (predicted + floor),
                    "over_spardl": one.whole / beside,
                }
            )
    if args.json:
        print(json.dumps(lines, indent=2))
        return 0
    for line in lines:
        print(
            f"{format_duration(line['latency']):>5} {format_bandwidth(line['bandwidth']):>8} {line['collective']:27}"
            f" select {line['select_seconds'] * 1000:5.0f}  wire {line['wire_seconds'] * 1000:5.0f}"
            f"  both {line['whole_seconds'] * 1000:5.0f} / {line['predicted_seconds'] * 1000:.0f} +"
            f" {line['floor_seconds'] * 1000:.0f} ms ({line['over_prediction']:.2f})"
            f"  {line['over_spardl']:.2f} x {BESIDE}"
        )
    return 0


def _measure(
    args: argparse.Namespace,
    networks: Sequence[tuple[int, str, str]],
    ratios: Sequence[tuple[str, ...]],
    names: tuple[str, ...],
) -> list[ExchangeTimes] | None:
    """Return the times of each network, at its ratios; None where some are left to the next run, as stderr says."""
    from trimtab.evaluation.bench.exchange_times import Measurement, measure

    wanted = [
        Measurement(*network, NUM_ELEMENTS, args.repeats, some, names)
        for network, some in zip(networks, ratios, strict=True)
    ]
    times = measure(wanted, args.out, args.networks)
    if len(times) == len(wanted):
        return times
    LOGGER.warning(f"{args.out} holds {len(times)} of {len(wanted)} networks; run it again for the others")
    return None


def _learn(model: Overheads, cell: Cell, collective: str, seconds: float, times: int) -> None:
    """Teach the model as in training, where each exchange is an observation: it trusts the median of many the more."""
    for _ in range(times):
        model.observe(collective, _cost(cell, collective), *_alpha_beta(cell), seconds)


def _judge(cell: Cell, model: Overheads) -> dict[str, Any]:
    predicted = {name: model.seconds(name, _cost(cell, name), *_alpha_beta(cell)) for name in cell.measured}
    named = min(predicted, key=predicted.__getitem__)
    return {
        "ranks": cell.num_ranks,
        "latency": parse_duration(cell.latency),
        "bandwidth": parse_bandwidth(cell.bandwidth),
        "ratio": float(cell.ratio),
        "measured_seconds": cell.measured,
        "predicted_seconds": predicted,
        "fastest": cell.fastest,
        "predicted": named,
        "clear": cell.is_clear,
        "regret": cell.measured[named] / cell.measured[cell.fastest],
    }


def _cost(cell: Cell, collective: str) -> Cost:
    return collective_cost(collective, NUM_ELEMENTS * BYTES_PER_ELEMENT, float(cell.ratio), cell.num_ranks)


def _alpha_beta(cell: Cell) -> tuple[float, float]:
    return parse_duration(cell.latency), 1 / parse_bandwidth(cell.bandwidth)


def _print(summary: dict[str, Any]) -> None:
    for cell in summary["cells"]:
        verdict = "right" if cell["predicted"] == cell["fastest"] else "wrong"
        print(
            f"N={cell['ranks']} {format_duration(cell['latency']):>5} {format_bandwidth(cell['bandwidth']):>8}"
            f" c={cell['ratio']:<6g} fastest {cell['fastest']:17} predicted {cell['predicted']:17}"
            f" {verdict if cell['clear'] else '(too close to call)'} {cell['regret']:.2f}  "
            + "  ".join(
                f"{name} {seconds * 1000:.0f}/{cell['predicted_seconds'][name] * 1000:.0f} ms"
                for name, seconds in cell["measured_seconds"].items()
            )
        )
    print(
        f"right in {summary['right']} of {summary['clear_cells']} clear cells, calibrated on"
        f" {summary['calibration_cells']} others; the predicted takes {summary['mean_regret']:.3f} times as long as the"
        f" fastest in the mean of all, {summary['worst_regret']:.2f} times at worst"
    )
