"""``trimtab plan``: the plan that would be chosen for a model, workers and a network, and the cost of each scheme.

It answers from closed forms and priors alone, before anything is bought or run. A running job also learns the overheads
of its own software.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_api.catalogue import (
    BYTES_PER_ELEMENT,
    DEFAULT_COLLECTIVES,
    DENSE_COLLECTIVES,
    CostRange,
    choices,
    collectives,
    cost_table,
    sources,
)
from trimtab_api.units import format_bandwidth, format_duration, format_size

from trimtab.cli.plan_arguments import OPTIMIZERS, add_arguments

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Print the choice and the table."""
    question = _Question(
        args.elements,
        args.workers,
        args.processes_per_worker,
        args.latency,
        args.bandwidth,
        args.compute,
        args.optimizer,
    )
    choice = _choose(question, args.local_steps)
    synchronous = _choose(question, 0) if choice.local_steps else choice
    rows = [row for ratio in dict.fromkeys(args.ratio) for row in _rows(question, ratio)]
    if args.json:
        print(json.dumps(_as_json(question, choice, synchronous, rows), indent=2))
    else:
        print("\n".join(_as_text(question, choice, synchronous, rows)))
    return 0


@dataclass(frozen=True)
class _Question:
    num_elements: int
    num_workers: int
    on_each: int
    latency: float
    bandwidth: float
    compute_seconds: float | None
    optimizer: str

    @property
    def num_ranks(self) -> int:
        return self.num_workers * self.on_each

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


def _rows(question: _Question, ratio: float) -> list[_Row]:
    """Return the table at one ratio; the winner is the fastest, at its worst, that a plan may name."""
    alpha, beta = question.latency, 1 / question.bandwidth
    table = cost_table(question.num_bytes, ratio, question.num_ranks, question.on_each)
    rows = []
    for scheme, cost in table:
        least, most = (cost.least, cost.most) if isinstance(cost, CostRange) else (cost, cost)
        seconds = (least.seconds(alpha, beta), most.seconds(alpha, beta))
        rows.append(_Row(ratio, scheme, least.messages, (least.bytes, most.bytes), seconds, is_winner=False))
    winner = min(
        (row for row in rows if _collective(row.scheme) in collectives.names()), key=lambda row: row.seconds[1]
    )
    return [_Row(**{**vars(row), "is_winner": row is winner}) for row in rows]


def _collective(scheme: str) -> str:
    """Return the collective of a line of the table, which may name options and a value format as well."""
    return scheme.partition("/")[0].partition(":")[0]


@dataclass(frozen=True)
class _Choice:
    plan: str
    step_seconds: float
    compute_seconds: float
    sync_seconds: float
    gain: float
    relative_steps: float
    dense_step_seconds: float
    local_steps: int


def _choose(question: _Question, local_steps: int) -> _Choice:
    """Return what the controller would adopt by its priors alone, after the warm-up, with at most these local steps."""
    from trimtab.control.cost_model.predictor import Predictor
    from trimtab.control.plan_evaluator import PlanEvaluator
    from trimtab.control.planning import FusionPlanning
    from trimtab.control.search.selection import choose
    from trimtab.control.settings import sources_by_default
    from trimtab.control.types import ControllerSettings, ModelFacts, OptimizerFamily
    from trimtab.plan.plan import Plan, dense_plan

    is_sgd = question.optimizer == "sgd"
    optimizer = OptimizerFamily(
        OPTIMIZERS[question.optimizer], "sgd" if is_sgd else "adam", has_mean_moments=not is_sgd
    )
    facts = ModelFacts(
        question.num_elements, (question.num_elements,), question.num_ranks, optimizer, ranks_on_each=question.on_each
    )
    predictor = Predictor(facts, question.compute_seconds)
    settings = ControllerSettings(
        collectives=choices(DEFAULT_COLLECTIVES, question.num_workers, question.on_each),
        sources=(sources.default, *sources_by_default(optimizer, local_steps)),
    )
    planning = FusionPlanning(predictor, facts, settings.candidate_ratios)

    def evaluate(plan: Plan) -> Any:
        return predictor.predict(plan, question.latency, 1 / question.bandwidth)

    found = choose(PlanEvaluator(evaluate, planning, settings, dense_plan(), optimizer), excluded_plans=(), seed=0)
    best = found.chosen
    return _Choice(
        best.plan.name,
        best.step_seconds,
        predictor.compute_seconds,
        best.sync_seconds,
        best.gain,
        best.convergence_slowdown,
        found.dense.step_seconds,
        best.plan.local_steps,
    )


def _as_json(question: _Question, choice: _Choice, synchronous: _Choice, rows: list[_Row]) -> dict[str, Any]:
    return {
        "parameters": question.num_elements,
        "workers": question.num_workers,
        "processes_per_worker": question.on_each,
        "latency": question.latency,
        "bandwidth": question.bandwidth,
        "optimizer": question.optimizer,
        "choice": vars(choice),
        "choice_without_local_steps": vars(synchronous),
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


def _as_text(question: _Question, choice: _Choice, synchronous: _Choice, rows: list[_Row]) -> list[str]:
    by = "as --compute says" if question.compute_seconds else "a guess from the size; give yours by --compute"
    width = max(24, *(len(row.scheme) for row in rows))
    of = f" of {question.on_each} processes" if question.on_each > 1 else ""
    lines = [
        f"{question.num_elements:,} parameters ({format_size(question.num_bytes)} of gradient), "
        f"{question.num_workers} workers{of}, {format_duration(question.latency)}, "
        f"{format_bandwidth(question.bandwidth)}",
        f"choice: {choice.plan}, predicted {format_duration(choice.step_seconds)} a step "
        f"(dense {format_duration(choice.dense_step_seconds)}), before this job's own overheads are learned",
        f"of it {format_duration(choice.compute_seconds)} computing ({by}) and "
        f"{format_duration(choice.sync_seconds)} waiting for the exchange",
        f"chosen for the time to the target: with {OPTIMIZERS[question.optimizer]} and its kin it should need "
        f"{choice.relative_steps:.2f} times as many steps as dense (--optimizer says of which family yours is)",
        *_if_in_each_step(choice, synchronous),
        "",
        f"{'ratio':>7}  {'scheme':<{width}} {'seconds':>20} {'messages':>9} {'bytes':>20}",
    ]
    shown: set[str] = set()
    for row in rows:
        is_dense = row.scheme == "parameter-server" or _collective(row.scheme) in DENSE_COLLECTIVES
        if is_dense and row.scheme in shown and not row.is_winner:
            continue  # the same at every ratio
        shown.add(row.scheme)
        ratio = "1" if is_dense else f"{row.ratio:g}"
        lines.append(
            f"{ratio:>7}  {row.scheme:<{width}} {_range(row.seconds, format_duration):>20} {row.messages:>9g} "
            f"{_range(row.bytes, format_size):>20}{'  <- fastest' if row.is_winner else ''}"
        )
    return [
        *lines,
        "",
        "fastest: an exchange alone, of the schemes that a plan can name; the others are for comparison",
    ]


def _if_in_each_step(choice: _Choice, synchronous: _Choice) -> list[str]:
    if not choice.local_steps:
        return []
    return [
        "it exchanges updates of several steps, as jobs that loop over session.batches may; without (--local-steps 0): "
        f"{synchronous.plan}, predicted {format_duration(synchronous.step_seconds)} a step, "
        f"{synchronous.relative_steps:.2f} times as many steps"
    ]


def _range(ends: tuple[float, float], text: Callable[[float], str]) -> str:
    least, most = text(ends[0]), text(ends[1])
    return least if least == most else f"{least} to {most}"
