"""The rules of a TrainingJob beyond types and bounds, each once, in two languages.

The API server checks a rule by CEL at ``kubectl apply``: the definition is generated from here. Everything else that
reads a job (launchers, sessions, the operator) checks it in Python, by `Ruled` and `obeys` of `fields`. A test holds
the two against each other. A message gives the remedy; whoever says it puts the field before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trimtab_api.catalogue import (
    AXES,
    DENSE_COLLECTIVES,
    SPARSE_COLLECTIVES,
    collectives,
    parse_plan_text,
    planners,
    reads_no_sparsifier,
    schedules,
    sparsifiers,
)
from trimtab_api.errors import UserError
from trimtab_api.names import MOST_WORKERS
from trimtab_api.trainingjob.checkpoint_rules import CHECKPOINT_RULES
from trimtab_api.trainingjob.quantities import DURATION_PATTERN, HOLDS_NOTHING
from trimtab_api.trainingjob.rule import Rule, Verdict

#: Fields of the spec that may change while the job exists.
MUTABLE = (
    "workers",
    "suspend",
    "maxRestarts",
    "maxDisruptions",
    "activeDeadlineSeconds",
    "progressDeadlineSeconds",
    "ttlSecondsAfterFinished",
)

_OPTIONS = "(:[a-z_]+=[^:/,]+)*"
_AXES = f"(/({'|'.join(AXES)})=[^/,]+)*$"
_DENSE = f"^(dense|({'|'.join(DENSE_COLLECTIVES)}){_OPTIONS}){_AXES}"
_NUMBER = r"([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][-+]?[0-9]+)?"
_PLAN = f"^{_NUMBER}/({'|'.join(SPARSE_COLLECTIVES)}){_OPTIONS}{_AXES}"
_TWO_BITS = ", ".join(f"'{row.name}'" for row in collectives.rows() if not row.is_dense and "int2" in row.wires)
_SELECT_THEMSELVES = tuple(name for name in SPARSE_COLLECTIVES if collectives[name].has_builtin_sparsifier)
_OF_THOSE = f"/({'|'.join(_SELECT_THEMSELVES)})(:[^/]*)?"
_READS_NO_SPARSIFIER = "; ".join(map(reads_no_sparsifier, _SELECT_THEMSELVES))
_WRITE_A_PLAN = "write dense, or RATIO/COLLECTIVE with a ratio in (0, 1), such as 0.01/all-gather"
#: Valid names of network interfaces; Linux takes 15 characters.
_INTERFACE = "^[A-Za-z0-9][-_.A-Za-z0-9]*$"
#: Valid names of jobs, whose pods and Service are named after them.
NAME_PATTERN, LONGEST_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$", 52


def _is_spec_for(names: Sequence[str]) -> str:
    """Return the CEL for one of the schemes with any options, which are read by whoever plans with them."""
    return f"self.matches('^({'|'.join(names)}){_OPTIONS}$')"


#: CEL: seconds of a duration, which obeys DURATION_PATTERN.
_SECONDS = (
    "(self.endsWith('us') ? double(self.replace('us', '').trim()) / 1000000.0 : "
    "self.endsWith('ms') ? double(self.replace('ms', '').trim()) / 1000.0 : "
    "self.endsWith('min') ? double(self.replace('min', '').trim()) * 60.0 : "
    "self.endsWith('h') ? double(self.replace('h', '').trim()) * 3600.0 : "
    "double(self.replace('s', '').trim()))"
)


def _plan_error(text: str) -> Verdict:
    """Return what is wrong with a plan's text (`trimtab_api.catalogue.plan_text`)."""
    try:
        parse_plan_text(text)
    except UserError as error:
        if error.field == "collective":
            sparse = (row.name for row in collectives.rows() if not row.is_dense)
            return f"not a sparse collective; choose from {', '.join(sparse)}"
        if error.field == "ratio" or error.remedy.startswith("write dense"):
            return _WRITE_A_PLAN
        return error.remedy if error.field == "plan" else str(error)
    return None


def _reads_no_sparsifier(communication: Any) -> Verdict:
    """Return why a sparsifier beside the default is not read: by a collective that may run and selects by itself."""
    if communication.policy == "Adaptive":
        may_run = communication.collectives
    else:
        may_run = () if communication.plan is None else (parse_plan_text(communication.plan).collective,)
    return next((reads_no_sparsifier(name) for name in may_run if collectives[name].has_builtin_sparsifier), None)


def _not_sent(communication: Any, wire: str) -> Verdict:
    """Return which collective that may run does not send a value format."""
    for name in communication.collectives:
        if wire not in (sends := collectives[name].wires):
            return f"{name} sends {' or '.join(sends)}; leave the one or the other out"
    return None


def unreachable(metric: str, value: float) -> str | None:
    """Return why a metric can never have a value, or always has; None if it can be aimed at."""
    if metric == "accuracy" and not 0 < value <= 1:
        return "an accuracy is a share, more than 0 and at most 1, such as 0.97"
    return None


RULES = (
    Rule(
        "spec.workers",
        f"self <= {MOST_WORKERS}",
        f"must be at most {MOST_WORKERS}: the monitors of a job measure every pair of its workers, and were proven with"
        " so many; use fewer, with more processesPerWorker",
        wrong=lambda workers: workers > MOST_WORKERS,
    ),
    Rule(
        "",
        f"self.metadata.name.size() <= {LONGEST_NAME} && self.metadata.name.matches('{NAME_PATTERN}')",
        f"metadata.name: must be at most {LONGEST_NAME} lower-case letters, digits and hyphens, beginning with a letter"
        " and ending with a letter or digit: pods and a Service are named after it",
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Static' || has(self.plan)",
        "a Static policy needs a plan, such as 0.01/all-gather",
        ".plan",
        lambda self: self.policy == "Static" and self.plan is None,
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Adaptive' || !has(self.plan)",
        "an Adaptive policy chooses its own; remove it or say policy: Static",
        ".plan",
        lambda self: self.policy == "Adaptive" and self.plan is not None,
    ),
    Rule(
        "spec.communication.plan",
        f"self.matches('{_DENSE}') || (self.matches('{_PLAN}') && double(self.split('/')[0]) > 0.0 "
        "&& double(self.split('/')[0]) < 1.0)",
        f"{_WRITE_A_PLAN}; collectives: {', '.join(SPARSE_COLLECTIVES)}",
        wrong=_plan_error,
    ),
    Rule("spec.communication.plan", f"!self.matches('{_OF_THOSE}/(.*/)?sparsifier=')", _READS_NO_SPARSIFIER),
    Rule(
        "spec.communication",
        f"self.sparsifier == '{sparsifiers.default}' || (self.policy == 'Static' ? "
        f"!has(self.plan) || !self.plan.matches('{_OF_THOSE}(/|$)') : "
        f"self.collectives.all(each, !each.matches('^({'|'.join(_SELECT_THEMSELVES)})(:|$)')))",
        _READS_NO_SPARSIFIER,
        ".sparsifier",
        lambda self: self.sparsifier != sparsifiers.default and _reads_no_sparsifier(self),
    ),
    Rule(
        "spec.communication",
        "self.policy == 'Static' || self.sparsifierAlternatives.size() == 0 || "
        f"self.collectives.all(each, !each.matches('^({'|'.join(_SELECT_THEMSELVES)})(:|$)'))",
        _READS_NO_SPARSIFIER,
        ".sparsifierAlternatives",
        lambda self: self.policy == "Adaptive" and self.sparsifier_alternatives and _reads_no_sparsifier(self),
    ),
    Rule(
        "spec.communication.ratio",
        "self.min <= self.max",
        "is more than max; lower it or raise max",
        ".min",
        lambda self: self.min > self.max and f"is more than max ({self.max:g}); lower it or raise max",
    ),
    Rule(
        "spec.communication.ratio",
        "!has(self.candidates) || self.candidates.all(each, each >= self.min && each <= self.max)",
        "one lies outside min..max; remove it or widen the bounds",
        ".candidates",
        wrong_item=lambda self, ratio: (
            not self.min <= ratio <= self.max
            and f"lies outside min..max ({self.min:g}..{self.max:g}); remove it or widen the bounds"
        ),
    ),
    Rule(
        "spec.communication.localSteps",
        "self.min <= self.max",
        "is more than max; lower it or raise max",
        ".min",
        lambda self: self.min > self.max and f"is more than max ({self.max}); lower it or raise max",
    ),
    Rule(
        "spec.communication.localSteps",
        "self.max > 0 || (self.outerRate == 1.0 && self.outerMomentum == 0.0)",
        "leaves no rounds that an outer step could follow; raise it, or remove outerRate and outerMomentum",
        ".max",
        lambda self: self.max == 0 and (self.outer_rate, self.outer_momentum) != (1.0, 0.0),
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Static' || !has(self.localSteps)",
        "a Static plan says it by itself, such as 0.01/all-gather/source=update:steps=8; remove it",
        ".localSteps",
        lambda self: self.policy == "Static" and self.local_steps is not None,
    ),
    Rule(
        "spec.communication",
        "!has(self.valueFormats) || !('int2' in self.valueFormats) || "
        f"self.collectives.all(each, each.split(':')[0] in [{_TWO_BITS}])",
        f"int2 is sent by {_TWO_BITS} alone; leave it or the other collectives out",
        ".valueFormats",
        wrong_item=_not_sent,
    ),
    Rule(
        "spec.communication.fusion.bufferSize",
        "self == 'single' || self.matches('[1-9]')",
        HOLDS_NOTHING,
    ),
    Rule(
        "spec.communication.collectives[]",
        _is_spec_for(SPARSE_COLLECTIVES),
        f"not known; choose from {', '.join(SPARSE_COLLECTIVES)}, with options as in spardl:teams=auto",
    ),
    Rule(
        "spec.communication.fusion.alternatives[]",
        _is_spec_for(planners.built_in),
        f"not known; choose from {', '.join(planners.built_in)}, with options as in equal:buffers=5",
    ),
    Rule(
        "spec.communication.schedules[]",
        _is_spec_for(schedules.built_in),
        f"not known; choose from {', '.join(schedules.built_in)}",
    ),
    Rule(
        "spec.communication.timeout",
        f"!self.matches(r'{DURATION_PATTERN}') || ({_SECONDS} >= 1.0 && {_SECONDS} <= 86400.0)",
        "must be at least 1s and at most 24h",
        wrong=lambda seconds: not 1 <= seconds <= 24 * 3600,
    ),
    Rule(
        "spec.target",
        "self.metric != 'accuracy' || (self.value > 0.0 && self.value <= 1.0)",
        "an accuracy is a share, more than 0 and at most 1, such as 0.97",
        ".value",
        lambda self: unreachable(self.metric, self.value),
    ),
    *CHECKPOINT_RULES,
    *(
        Rule(
            f"spec.checkpoint.{field}",
            f"!self.matches(r'{DURATION_PATTERN}') || {_SECONDS} >= 1.0",
            "must be at least 1s",
            wrong=lambda seconds: seconds < 1.0,
        )
        for field in ("interval", "inMemoryInterval")
    ),
    Rule(
        "spec.network.probeInterval",
        f"!self.matches(r'{DURATION_PATTERN}') || ("
        "self.endsWith('us') ? double(self.replace('us', '').trim()) >= 100000.0 : "
        "self.endsWith('ms') ? double(self.replace('ms', '').trim()) >= 100.0 : "
        "self.endsWith('min') ? double(self.replace('min', '').trim()) >= 0.0017 : "
        "self.endsWith('h') ? double(self.replace('h', '').trim()) >= 0.00003 : "
        "double(self.replace('s', '').trim()) >= 0.1)",
        "must be at least 100ms",
        wrong=lambda seconds: seconds < 0.1,
    ),
    Rule(
        "spec.network.secondInterface",
        f"self.matches(r'{_INTERFACE}')",
        "name it as `ip link` lists it, such as net1",
        wrong=lambda name: not re.fullmatch(_INTERFACE, name),
    ),
    Rule(
        "spec",
        "has(self.target) == has(oldSelf.target)",
        "cannot come or go while the job exists; delete the job and create it anew",
        ".target",
    ),
    Rule(
        "spec",
        "has(self.checkpoint) == has(oldSelf.checkpoint)",
        "cannot come or go while the job exists; delete the job and create it anew",
        ".checkpoint",
    ),
    Rule(
        "spec",
        "self.workers == oldSelf.workers || has(self.checkpoint)",
        "cannot change while the job exists, which has no spec.checkpoint and would begin anew; delete the job and"
        " create it anew",
        ".workers",
    ),
    Rule(
        "spec",
        "self.workers >= oldSelf.workers || !has(self.checkpoint) || has(self.checkpoint.path)"
        " || has(self.checkpoint.volumeClaim)",
        "cannot become fewer where checkpoints are in the workers' memory alone; delete the job and create it anew",
        ".workers",
    ),
)


def immutable(field: str) -> Rule:
    """Return the rule of a field that must stay as it was created."""
    remedy = "cannot change while the job exists; delete the job and create it anew"
    return Rule(f"spec.{field}", "self == oldSelf", remedy)
