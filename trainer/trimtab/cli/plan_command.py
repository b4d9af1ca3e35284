"""``trimtab plan``: the plan that would be chosen for a model, workers and a network, and the cost of each scheme.

It answers from closed forms and priors alone, before anything is bought or run. A running job also learns the overheads
of its own software.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_api.catalogue import BYTES_PER_ELEMENT, DENSE_COLLECTIVES, CostRange, collectives, cost_table
from trimtab_api.command_line import number, quantity, whole_number, wrong
from trimtab_api.errors import UserError
from trimtab_api.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)

#: A value beyond these bounds is refused: its unit is most likely wrong.
MAX_PARAMETERS = 10**13
MAX_WORKERS = 65536
MAX_LATENCY = 10.0
MIN_BANDWIDTH = parse_bandwidth("1kbps")
MAX_BANDWIDTH = parse_bandwidth("10000Gbps")
MAX_COMPUTE = 3600.0
MIN_RATIO = 1e-6

_COUNT_UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
_OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--parameters", type=_count, metavar="COUNT", help="parameters of the model, such as 25.6M", dest="elements"
    )
    size.add_argument(
        "--model-size",
        type=_elements_of_size,
        metavar="SIZE",
        help="bytes of its float32 gradient, such as 100MB",
        dest="elements",
    )
    parser.add_argument(
        "--workers",
        type=whole_number("--workers", 2, MAX_WORKERS),
        required=True,
        metavar="N",
        help="training processes",
    )
    parser.add_argument(
        "--latency",
        type=quantity("--latency", parse_duration, 0.0, MAX_LATENCY, format_duration),
        required=True,
        metavar="TIME",
        help="one-way latency of a link, such as 5ms",
    )
    parser.add_argument(
        "--bandwidth",
        type=quantity("--bandwidth", parse_bandwidth, MIN_BANDWIDTH, MAX_BANDWIDTH, format_bandwidth),
        required=True,
        metavar="RATE",
        help="bandwidth of a link, such as 1Gbps",
    )
    parser.add_argument(
        "--compute",
        type=quantity("--compute", parse_duration, 0.0, MAX_COMPUTE, format_duration),
        metavar="TIME",
        help="forward and backward of one step (default: a guess from the model's size)",
    )
    parser.add_argument(
        "--optimizer",
        choices=tuple(_OPTIMIZERS),
        default="adam",
        help="its family decides how many more steps compression costs: adam (default) stands for all that divide by "
        "a running size of the gradient, and for what is neither",
    )
    parser.add_argument(
        "--ratio",
        type=_ratio,
        nargs="+",
        default=[0.1, 0.01, 0.001],
        metavar="C",
        help="compression ratios of the table (default: 0.1 0.01 0.001)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the choice and the table."""
    question = _Question(args.elements, args.workers, args.latency, args.bandwidth, args.compute, args.optimizer)
    choice, dense_seconds = _choose(question)
    rows = [row for ratio in dict.fromkeys(args.ratio) for row in _rows(question, ratio)]
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
    optimizer: str

    @property
    def num_bytes(self) -> int:
        return BYTES_PER_ELEMENT * self.num_elements


@dataclass(frozen=True)
class _Row:
    """One scheme at one ratio. Bytes and seconds are (least, most): they may depend on what the ranks select."""

    ratio: float
    scheme: str
    messages: float
    bytes: tuple[float, float]
    seconds: tuple[float, float]
    is_winner: bool


def _count(text: str) -> int:
    found = re.fullmatch(r"(\d+)(\.\d*)?(?:e(\d))?([kMBG]?)", text, re.ASCII)
    remedy = "write a whole number, or a count such as 25.6M or 7B"
    if not found or (found[2] and not found[3] and not found[4]):
        raise wrong(remedy, "--parameters", text)
    return _checked(round(float(text.rstrip("kMBG")) * _COUNT_UNITS[found[4]]), "--parameters", text)


def _elements_of_size(text: str) -> int:
    try:
        size = parse_size(text)
    except UserError as error:
        raise wrong(error.remedy, "--model-size", text) from None
    return _checked(size // BYTES_PER_ELEMENT, "--model-size", text)


def _checked(num_elements: int, field: str, text: str) -> int:
    if not 1 <= num_elements <= MAX_PARAMETERS:
        remedy = f"a model has 1 to {MAX_PARAMETERS:,} parameters, of 4 bytes each"
        raise UserError(remedy, field=field, value=text)
    return num_elements


def _ratio(text: str) -> float:
    ratio = number("--ratio", such_as="0.01")(text)
    if not MIN_RATIO <= ratio <= 1:
        raise UserError(f"a compression ratio is {MIN_RATIO:f} to 1", field="--ratio", value=text)
    return ratio


def _rows(question: _Question, ratio: float) -> list[_Row]:
    """The table at one ratio; the winner is the fastest scheme that a plan may name."""
    alpha, beta = question.latency, 1 / question.bandwidth
    table = cost_table(question.num_bytes, ratio, question.num_ranks)
    rows = []
    for scheme, cost in table:
        least, most = (cost.least, cost.most) if isinstance(cost, CostRange) else (cost, cost)
        seconds = (least.seconds(alpha, beta), most.seconds(alpha, beta))
        rows.append(_Row(ratio, scheme, least.messages, (least.bytes, most.bytes), seconds, is_winner=False))
    winner = min(
        (row for row in rows if row.scheme.partition(":")[0] in collectives.names()), key=lambda row: row.seconds
    )
    return [_Row(**{**vars(row), "is_winner": row is winner}) for row in rows]


@dataclass(frozen=True)
class _Choice:
    plan: str
    step_seconds: float
    compute_seconds: float
    sync_seconds: float
    gain: float
    relative_steps: float


def _choose(question: _Question) -> tuple[_Choice, float]:
    """What the controller would adopt by its priors alone, after the warm-up; and the step time of dense."""
    from trimtab.control.choice import choose
    from trimtab.control.plan_evaluator import PlanEvaluator
    from trimtab.control.planning import FusionPlanning
    from trimtab.control.predict import Predictor
    from trimtab.control.types import ControllerSettings, ModelFacts, OptimizerFamily
    from trimtab.plan import Plan, dense_plan

    optimizer = OptimizerFamily(_OPTIMIZERS[question.optimizer], "sgd" if question.optimizer == "sgd" else "adam")
    facts = ModelFacts(question.num_elements, (question.num_elements,), question.num_ranks, optimizer)
    predictor, settings = Predictor(facts, question.compute_seconds), ControllerSettings()
    planning = FusionPlanning(predictor, facts, settings.candidate_ratios)

    def evaluate(plan: Plan) -> Any:
        return predictor.predict(plan, question.latency, 1 / question.bandwidth)

    found = choose(PlanEvaluator(evaluate, planning, settings, dense_plan(), optimizer), banned=(), seed=0)
    best = found.chosen
    choice = _Choice(
        best.plan.name, best.step_seconds, predictor.compute_seconds, best.sync_seconds, best.gain, best.relative_steps
    )
    return choice, found.dense.step_seconds


def _as_json(question: _Question, choice: _Choice, dense_seconds: float, rows: list[_Row]) -> dict[str, Any]:
    return {
        "parameters": question.num_elements,
        "workers": question.num_ranks,
        "latency": question.latency,
        "bandwidth": question.bandwidth,
        "optimizer": question.optimizer,
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
    by = "as --compute says" if question.compute_seconds else "a guess from the size; give yours by --compute"
    lines = [
        f"{question.num_elements:,} parameters ({format_size(question.num_bytes)} of gradient), "
        f"{question.num_ranks} workers, {format_duration(question.latency)}, {format_bandwidth(question.bandwidth)}",
        f"choice: {choice.plan}, predicted {format_duration(choice.step_seconds)} a step "
        f"(dense {format_duration(dense_seconds)}), before this job's own overheads are learned",
        f"of it {format_duration(choice.compute_seconds)} computing ({by}) and "
        f"{format_duration(choice.sync_seconds)} waiting for the exchange",
        f"chosen for the time to the target: with {_OPTIMIZERS[question.optimizer]} and its kin it should need "
        f"{choice.relative_steps:.2f} times as many steps as dense (--optimizer says of which family yours is)",
        "",
        f"{'ratio':>7}  {'scheme':<17} {'seconds':>20} {'messages':>9} {'bytes':>20}",
    ]
    shown: set[str] = set()
    for row in rows:
        is_dense = row.scheme == "parameter-server" or row.scheme in DENSE_COLLECTIVES
        if is_dense and row.scheme in shown and not row.is_winner:
            continue  # the same at every ratio
        shown.add(row.scheme)
        ratio = "1" if is_dense else f"{row.ratio:g}"
        lines.append(
            f"{ratio:>7}  {row.scheme:<17} {_range(row.seconds, format_duration):>20} {row.messages:>9g} "
            f"{_range(row.bytes, format_size):>20}{'  <- fastest' if row.is_winner else ''}"
        )
    return [
        *lines,
        "",
        "fastest: an exchange alone, of the schemes that a plan can name; the others are for comparison",
    ]


def _range(ends: tuple[float, float], text: Callable[[float], str]) -> str:
    least, most = text(ends[0]), text(ends[1])
    return least if least == most else f"{least} to {most}"
