"""The text of a plan: ``RATIO/COLLECTIVE`` or a dense collective, and each axis that is not the default.

``0.01/all-gather/sparsifier=topk/fusion=fixed:bytes=4000000:selection=ahead/source=update:steps=8``. Tables, logs,
records, job files and flags all use this one form. It holds no comma, so that plans can be listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_api.catalogue.collectives import collectives
from trimtab_api.catalogue.fusion import asks_for_ahead, planners
from trimtab_api.catalogue.schedules import schedules
from trimtab_api.catalogue.sources import sources
from trimtab_api.catalogue.sparsifiers import sparsifiers
from trimtab_api.catalogue.wires import wires
from trimtab_api.errors import UserError

#: The axes that a plan's text names where they are not the default, in order.
AXES = {axis.name: axis for axis in (sparsifiers, planners, schedules, sources, wires)}
#: The collective that ``dense`` stands for.
DENSE = "dense-ring"
_REMEDY = "write dense, or RATIO/COLLECTIVE such as 0.01/all-gather"


@dataclass(frozen=True)
class ParsedPlan:
    """The parts of a plan's text, each scheme in its normal form."""

    ratio: float
    collective: str
    axes: Mapping[str, str]
    """The schemes that the text names, by the names of `AXES`."""

    @property
    def text(self) -> str:
        """The normal text of the plan, which names these axes and no others."""
        ratio = [] if collectives[self.collective].is_dense else [_ratio_text(self.ratio)]
        return "/".join([*ratio, self.collective, *(f"{name}={self.axes[name]}" for name in AXES if name in self.axes)])


def parse_plan_text(text: str) -> ParsedPlan:
    """Parse a plan's text.

    Raises:
        UserError: If a part is wrong; the error names it.
    """
    head, *rest = text.split("/")
    ratio, collective = 1.0, head
    if head == "dense":
        collective = DENSE
    elif not _is_dense(head):
        try:
            ratio = float(head)
        except ValueError:
            raise UserError(_REMEDY, field="plan", value=text) from None
        if not rest:
            raise UserError(_REMEDY, field="plan", value=text)
        collective, *rest = rest
    axes: dict[str, str] = {}
    for part in rest:
        name, equals, spec = part.partition("=")
        if not equals or name not in AXES:
            remedy = f"after the collective, name axes as in sparsifier=topk; axes: {', '.join(AXES)}"
            raise UserError(remedy, field="plan", value=text)
        if name in axes:
            raise UserError(f"the axis {name} is named twice; leave out one", field="plan", value=text)
        axes[name] = AXES[name].normalize(spec)
        if name == planners.name and asks_for_ahead(spec) and not collectives[collective].selects_by_tensor:
            raise UserError(selects_not_by_tensor(collective), field=name, value=spec)
    check_ratio(ratio, collective)
    if sparsifiers.name in axes and collectives[collective].has_builtin_sparsifier:
        raise UserError(reads_no_sparsifier(collective), field=sparsifiers.name, value=axes[sparsifiers.name])
    return ParsedPlan(ratio, collectives.normalize(collective), axes)


def format_plan(ratio: float, collective: str, axes: Mapping[str, str]) -> str:
    """Return the text of a plan, of whose ``axes`` all are given; axes with their default are left out."""
    return ParsedPlan(ratio, collective, {name: axes[name] for name in AXES if axes[name] != AXES[name].default}).text


def check_ratio(ratio: float, collective: str) -> None:
    """Check a ratio alone and with its collective.

    Raises:
        UserError: If the ratio is not in (0, 1], or does not go with the collective.
    """
    if not 0 < ratio <= 1:
        raise UserError(
            "a compression ratio is in (0, 1]; 0.01 sends 1% of the gradient", field="ratio", value=f"{ratio:g}"
        )
    if (ratio == 1) != collectives[collective].is_dense:
        dense = " or ".join(row.name for row in collectives.rows() if row.is_dense)
        raise UserError(
            f"ratio 1 goes with {dense}, every other ratio with a sparse collective",
            field="collective",
            value=f"{ratio:g}/{collective}",
        )


def reads_no_sparsifier(collective: str) -> str:
    """Return why no sparsifier goes with a collective that selects by itself, with the remedy."""
    return f"{collectives[collective].name} selects by itself, and reads no sparsifier; leave the one or the other out"


def selects_not_by_tensor(collective: str) -> str:
    """Return why a collective cannot choose k per tensor, with the remedy."""
    return f"{collectives[collective].name} cannot select in each tensor; write selection=behind"


def _ratio_text(ratio: float) -> str:
    """Return the shortest text that reads back to the same ratio."""
    short = f"{ratio:g}"
    return short if float(short) == ratio else repr(ratio)


def _is_dense(text: str) -> bool:
    return text.partition(":")[0] in {row.name for row in collectives.rows() if row.is_dense}
