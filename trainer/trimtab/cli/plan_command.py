"""``trimtab plan``: what would be chosen for a model, a number of workers and a network, and what each scheme costs.

Answers from closed forms and priors alone, before anything is bought or run; on a real job the overheads of its
software are learned on top.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from trimtab_api.errors import UserError
from trimtab_api.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)

from trimtab.collectives.costs import BYTES_PER_ELEMENT, CostRange, cost_table
from trimtab.plan import COLLECTIVES, DENSE_COLLECTIVES

T = TypeVar("T")

_COUNT_UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
_DENSE_ROWS = ("parameter-server", *DENSE_COLLECTIVES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--parameters", metavar="COUNT", help="parameters of the model, such as 25.6M")
    size.add_argument("--model-size", metavar="SIZE", help="bytes of its float32 gradient, such as 100MB")
    parser.add_argument("--workers", type=int, required=True, metavar="N", help="training processes")
    parser.add_argument("--latency", required=True, metavar="TIME", help="one-way latency of a link, such as 5ms")
    parser.add_argument("--bandwidth", required=True, metavar="RATE", help="bandwidth of a link, such as 1Gbps")
    parser.add_argument(
        "--compute", metavar="TIME", help="forward and backward of one step (default: a guess from the model's size)"
    )
    parser.add_argument(
        "--ratio",
        type=float,
        nargs="+",
        default=[0.1, 0.01, 0.001],
        metavar="C",
        help="compression ratios of the table (default: 0.1 0.01 0.001)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the choice and the table. Raises `UserError` for a flag that makes no sense."""
    question = _read(args)
    choice, dense_seconds = _choose(question)
    rows = [row for ratio in args.ratio for row in _rows(question, ratio)]
    if args.json:
        print(json.dumps(_as_json(question, choice, dense_seconds, rows), indent=2))
    else:
        print("\n".join(_as_text(question, choice, dense_seconds, rows)))
    return 0


@dataclass(frozen=True)
class _Question:
    num_elements: int
    num_ranks: int
    latency: float
    bandwidth: float
    compute_seconds: float | None

    @property
    def num_bytes(self) -> int:
        return BYTES_PER_ELEMENT * self.num_elements


@dataclass(frozen=True)
class _Row:
    """One scheme at one ratio. The two seconds and bytes differ where they depend on the selections."""

    ratio: float
    scheme: str
    messages: float
    bytes: tuple[float, float]
    seconds: tuple[float, float]
    is_winner: bool


def _read(args: argparse.Namespace) -> _Question:
    if args.workers < 2:
        raise UserError("give 2 or more: one worker exchanges nothing", field="--workers", value=str(args.workers))
    for ratio in args.ratio:
        if not 0 < ratio <= 1:
            raise UserError("a compression ratio is in (0, 1]", field="--ratio", value=f"{ratio:g}")
    if args.parameters is not None:
        num_elements = _parsed("--parameters", _parse_count, args.parameters)
    else:
        num_elements = _parsed("--model-size", parse_size, args.model_size) // BYTES_PER_ELEMENT
    if num_elements < 1:
        raise UserError(
            "a model has at least one parameter of 4 bytes",
            field="--parameters" if args.parameters is not None else "--model-size",
            value=args.parameters or args.model_size,
        )
    bandwidth = _parsed("--bandwidth", parse_bandwidth, args.bandwidth)
    if bandwidth <= 0:
        raise UserError("nothing crosses a link of no bandwidth", field="--bandwidth", value=args.bandwidth)
    latency = _parsed("--latency", parse_duration, args.latency)
    compute = _parsed("--compute", parse_duration, args.compute) if args.compute is not None else None
    return _Question(num_elements, args.workers, latency, bandwidth, compute)


def _parsed(field: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UserError as error:
        raise UserError(error.remedy, field=field, value=text) from None


def _parse_count(text: str) -> int:
    number, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    try:
        return round(float(number) * _COUNT_UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise UserError("write a count such as 25.6M or 7B") from None


def _rows(question: _Question, ratio: float) -> list[_Row]:
    """The whole table at one ratio; the winner is the fastest of the schemes that a plan may name."""
    alpha, beta = question.latency, 1 / question.bandwidth
    table = cost_table(question.num_bytes, ratio, question.num_ranks)
    rows = []
    for scheme, cost in table:
        least, most = (cost.least, cost.most) if isinstance(cost, CostRange) else (cost, cost)
        seconds = (least.seconds(alpha, beta), most.seconds(alpha, beta))
        rows.append(_Row(ratio, scheme, least.messages, (least.bytes, most.bytes), seconds, is_winner=False))
    winner = min((row for row in rows if row.scheme in COLLECTIVES), key=lambda row: row.seconds)
    return [_Row(**{**vars(row), "is_winner": row is winner}) for row in rows]


@dataclass(frozen=True)
class _Choice:
    plan: str
    step_seconds: float
    sync_seconds: float
    gain: float


def _choose(question: _Question) -> tuple[_Choice, float]:
    """What the controller would adopt after its warm-up, knowing nothing but its priors; and dense's step time."""
    from trimtab.control.knee import knee
    from trimtab.control.predict import Predictor
    from trimtab.control.solve import Space, solve
    from trimtab.control.types import ControllerSettings, ModelFacts
    from trimtab.plan import Plan, dense_plan

    settings = ControllerSettings()
    predictor = Predictor(
        ModelFacts(question.num_elements, (question.num_elements,), question.num_ranks), question.compute_seconds
    )
    space = Space(settings.min_ratio, settings.max_ratio, settings.collectives, settings.fusions)

    def evaluate(plan: Plan) -> Any:
        return predictor.point(plan, question.latency, 1 / question.bandwidth, step=0)

    dense = evaluate(dense_plan())
    best = knee(solve(space, evaluate, seed=0), dense, settings.speed_weight)
    return _Choice(best.plan.name, best.step_seconds, best.sync_seconds, best.gain), dense.step_seconds


def _as_json(question: _Question, choice: _Choice, dense_seconds: float, rows: list[_Row]) -> dict[str, Any]:
    return {
        "parameters": question.num_elements,
        "workers": question.num_ranks,
        "latency": question.latency,
        "bandwidth": question.bandwidth,
        "choice": {**vars(choice), "dense_step_seconds": dense_seconds},
        "table": [
            {
                "ratio": row.ratio,
                "scheme": row.scheme,
                "messages": row.messages,
                "bytes": list(row.bytes),
                "seconds": list(row.seconds),
                "winner": row.is_winner,
            }
            for row in rows
        ],
    }


def _as_text(question: _Question, choice: _Choice, dense_seconds: float, rows: list[_Row]) -> list[str]:
    lines = [
        f"{question.num_elements:,} parameters ({format_size(question.num_bytes)} of gradient), "
        f"{question.num_ranks} workers, {format_duration(question.latency)}, {format_bandwidth(question.bandwidth)}",
        f"choice: {choice.plan}, predicted {format_duration(choice.step_seconds)} a step "
        f"(dense {format_duration(dense_seconds)}), before this job's own overheads are learned",
        "",
        f"{'ratio':>7}  {'scheme':<17} {'seconds':>20} {'messages':>9} {'bytes':>20}",
    ]
    shown_dense = False
    for row in rows:
        if row.scheme in _DENSE_ROWS and shown_dense and not row.is_winner:
            continue  # the same at every ratio
        ratio = "1" if row.scheme in _DENSE_ROWS else f"{row.ratio:g}"
        lines.append(
            f"{ratio:>7}  {row.scheme:<17} {_range(row.seconds, format_duration):>20} {row.messages:>9g} "
            f"{_range(row.bytes, format_size):>20}{'  <- fastest' if row.is_winner else ''}"
        )
        shown_dense = shown_dense or row.scheme == _DENSE_ROWS[-1]
    return lines


def _range(ends: tuple[float, float], text: Callable[[float], str]) -> str:
    least, most = text(ends[0]), text(ends[1])
    return least if least == most else f"{least} to {most}"
