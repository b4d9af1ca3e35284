"""The rules of a TrainingJob beyond types and bounds, in the language of the API server (CEL).

The API server checks them at ``kubectl apply``. The validators in `types` check the same of a file on one machine, and
a test holds the two against each other. A message gives the remedy; the API server puts the field before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab_api.catalogue import (
    AXES,
    DENSE_COLLECTIVES,
    SPARSE_COLLECTIVES,
    Registry,
    collectives,
    planners,
    reads_no_sparsifier,
    schedules,
    sparsifiers,
)
from trimtab_api.names import MOST_WORKERS, RESERVED_VARIABLES
from trimtab_api.trainingjob.quantities import DURATION_PATTERN


@dataclass(frozen=True)
class Rule:
    """One rule, evaluated wherever the schema at ``at`` has a value."""

    at: str
    """Dotted path of the schema; ``[]`` is each item of a list; empty: the whole object."""
    holds: str
    """CEL: true of a good value, which it calls `self`."""
    message: str
    field: str = ""
    """The field at fault beneath ``at``, such as ``.plan``; empty: the value itself."""


#: Fields of the spec that may change while the job exists.
MUTABLE = (
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
_RESERVED = ", ".join(f"'{variable}'" for variable in RESERVED_VARIABLES)
_PLAN_REMEDY = (
    "write dense, or RATIO/COLLECTIVE with a ratio in (0, 1), such as 0.01/all-gather; collectives: "
    f"{', '.join(SPARSE_COLLECTIVES)}"
)


def _is_spec_for(axis: Registry[Any]) -> str:
    """Return the CEL for a scheme of the axis with any options, which are read by whoever plans with them."""
    return f"self.matches('^({'|'.join(axis.built_in)}){_OPTIONS}$')"


_CONTAINERS = "spec.template.spec.containers"

#: CEL: seconds of a duration, which obeys DURATION_PATTERN.
_SECONDS = (
    "(self.endsWith('us') ? double(self.replace('us', '').trim()) / 1000000.0 : "
    "self.endsWith('ms') ? double(self.replace('ms', '').trim()) / 1000.0 : "
    "self.endsWith('min') ? double(self.replace('min', '').trim()) * 60.0 : "
    "self.endsWith('h') ? double(self.replace('h', '').trim()) * 3600.0 : "
    "double(self.replace('s', '').trim()))"
)

#: Said by the API server and by the validators alike.
TOO_MANY_WORKERS = (
    f"must be at most {MOST_WORKERS}: the monitors of a job measure every pair of its workers, and were proven with so "
    "many; use fewer, with more processesPerWorker"
)

STATIC_PLAN_SAYS_LOCAL_STEPS = (
    "a Static plan says it by itself, such as 0.01/all-gather/source=update:steps=8; remove it"
)

OUTER_STEP_NEEDS_LOCAL_STEPS = (
    "leaves no rounds that an outer step could follow; raise it, or remove outerRate and outerMomentum"
)

RULES = (
    Rule("spec.workers", f"self <= {MOST_WORKERS}", TOO_MANY_WORKERS),
    Rule(
        "",
        "self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name: must be at most 52 lower-case letters, digits and hyphens, beginning with a letter and ending "
        "with a letter or digit: pods and a Service are named after it",
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Static' || has(self.plan)",
        "a Static policy needs a plan, such as 0.01/all-gather",
        ".plan",
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Adaptive' || !has(self.plan)",
        "an Adaptive policy chooses its own; remove it or say policy: Static",
        ".plan",
    ),
    Rule(
        "spec.communication.plan",
        f"self.matches('{_DENSE}') || (self.matches('{_PLAN}') && double(self.split('/')[0]) > 0.0 "
        "&& double(self.split('/')[0]) < 1.0)",
        _PLAN_REMEDY,
    ),
    Rule("spec.communication.plan", f"!self.matches('{_OF_THOSE}/(.*/)?sparsifier=')", _READS_NO_SPARSIFIER),
    Rule(
        "spec.communication",
        f"self.sparsifier == '{sparsifiers.default}' || (self.policy == 'Static' ? "
        f"!has(self.plan) || !self.plan.matches('{_OF_THOSE}(/|$)') : "
        f"self.collectives.all(each, !each.matches('^({'|'.join(_SELECT_THEMSELVES)})$')))",
        _READS_NO_SPARSIFIER,
        ".sparsifier",
    ),
    Rule(
        "spec.communication",
        "self.policy == 'Static' || self.sparsifierAlternatives.size() == 0 || "
        f"self.collectives.all(each, !each.matches('^({'|'.join(_SELECT_THEMSELVES)})$'))",
        _READS_NO_SPARSIFIER,
        ".sparsifierAlternatives",
    ),
    Rule("spec.communication.ratio", "self.min <= self.max", "is more than max; lower it or raise max", ".min"),
    Rule(
        "spec.communication.ratio",
        "!has(self.candidates) || self.candidates.all(each, each >= self.min && each <= self.max)",
        "one lies outside min..max; remove it or widen the bounds",
        ".candidates",
    ),
    Rule("spec.communication.localSteps", "self.min <= self.max", "is more than max; lower it or raise max", ".min"),
    Rule(
        "spec.communication.localSteps",
        "self.max > 0 || (self.outerRate == 1.0 && self.outerMomentum == 0.0)",
        OUTER_STEP_NEEDS_LOCAL_STEPS,
        ".max",
    ),
    Rule(
        "spec.communication",
        "self.policy != 'Static' || !has(self.localSteps)",
        STATIC_PLAN_SAYS_LOCAL_STEPS,
        ".localSteps",
    ),
    Rule(
        "spec.communication",
        "!has(self.valueFormats) || !('int2' in self.valueFormats) || "
        f"self.collectives.all(each, each in [{_TWO_BITS}])",
        f"int2 is sent by {_TWO_BITS} alone; leave it or the other collectives out",
        ".valueFormats",
    ),
    Rule(
        "spec.communication.fusion.bufferSize",
        "self == 'single' || self.matches('[1-9]')",
        "holds nothing; write a size such as 25MB, or single for one buffer",
    ),
    Rule(
        "spec.communication.fusion.alternatives[]",
        _is_spec_for(planners),
        f"not known; choose from {', '.join(planners.built_in)}, with options as in equal:buffers=5",
    ),
    Rule(
        "spec.communication.schedules[]",
        _is_spec_for(schedules),
        f"not known; choose from {', '.join(schedules.built_in)}",
    ),
    Rule(
        "spec.communication.timeout",
        f"!self.matches(r'{DURATION_PATTERN}') || ({_SECONDS} >= 1.0 && {_SECONDS} <= 86400.0)",
        "must be at least 1s and at most 24h",
    ),
    Rule(
        "spec.target",
        "self.metric != 'accuracy' || (self.value > 0.0 && self.value <= 1.0)",
        "an accuracy is a share, more than 0 and at most 1, such as 0.97",
        ".value",
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
    ),
    Rule(
        _CONTAINERS,
        "self.exists_one(each, each.name == 'trainer')",
        "name exactly one container trainer; it runs the training command",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || has(self.command)",
        "the trainer needs a command: write a list of strings, such as [python, train.py]",
        ".command",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || has(self.image)",
        "the trainer needs an image on a cluster: write one that holds trimtab and your script",
        ".image",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        "self.name != 'trainer' || !has(self.env) || self.env.all(each, each.name != '' && !each.name.contains('='))",
        "holds a variable without a name, or with = in it; name each in printable ASCII without =",
        ".env",
    ),
    Rule(
        f"{_CONTAINERS}[]",
        f"self.name != 'trainer' || !has(self.env) || self.env.all(each, !(each.name in [{_RESERVED}]))",
        f"holds a variable that the launcher sets; remove it ({', '.join(RESERVED_VARIABLES)})",
        ".env",
    ),
    Rule(
        "spec.template.spec",
        "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
        "is always Never: all ranks restart together; remove it, and set spec.restartPolicy instead",
        ".restartPolicy",
    ),
    Rule("spec.template.spec", "!has(self.hostname)", "is given to each worker; remove it", ".hostname"),
    Rule("spec.template.spec", "!has(self.subdomain)", "is the job's Service; remove it", ".subdomain"),
    *(
        Rule(
            at,
            "self.all(each, each.name != 'netmon')",
            "netmon is the name of the network monitor that every pod is given; choose another",
        )
        for at in ("spec.template.spec.initContainers", _CONTAINERS)
    ),
    Rule(
        "spec.template.spec.volumes",
        "self.all(each, each.name == 'trimtab-run' || !each.name.startsWith('trimtab-'))",
        "names that begin with trimtab- are taken (but for trimtab-run, where runs are kept); choose another",
    ),
    Rule(
        "spec",
        "has(self.target) == has(oldSelf.target)",
        "cannot come or go while the job exists; delete the job and create it anew",
        ".target",
    ),
)


def immutable(field: str) -> Rule:
    """Return the rule of a field that must stay as it was created."""
    remedy = "cannot change while the job exists; delete the job and create it anew"
    return Rule(f"spec.{field}", "self == oldSelf", remedy)
