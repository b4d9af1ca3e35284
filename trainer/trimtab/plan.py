"""What the controller may change: the plan, immutable and versioned, and its text and JSON forms.

A plan in text is ``RATIO/COLLECTIVE`` (``0.01/all-gather``) or ``dense``; the full form is JSON. This module
imports nothing heavy, so that ``trimtab plan`` answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from trimtab_api import catalogue
from trimtab_api.catalogue import DENSE_COLLECTIVES
from trimtab_api.catalogue.collective import CollectiveRow
from trimtab_api.catalogue.costs import BYTES_PER_ELEMENT, Cost
from trimtab_api.errors import UserError

Selection = Literal["ahead", "behind"]


@dataclass(frozen=True)
class FusionPlan:
    """Which gradient elements share a buffer.

    ``cuts`` are element offsets into the flat gradient, in backward order, where a new buffer begins; the first is
    always 0, and buffer ``i`` holds the elements ``cuts[i] .. cuts[i+1]-1``, so that a large tensor may be split.
    ``selection`` is *ahead* of fusion (k per tensor, or per part of one) or *behind* it (k per buffer).
    """

    cuts: tuple[int, ...] = (0,)
    selection: Selection = "behind"

    def __post_init__(self) -> None:
        if not self.cuts or self.cuts[0] != 0 or any(a >= b for a, b in pairwise(self.cuts)):
            raise UserError(
                "a fusion plan's cuts start at 0 and increase", field="fusion.cuts", value=str(list(self.cuts))
            )

    def buffers(self, num_elements: int) -> list[range]:
        """The elements of each buffer of a gradient of ``num_elements``, in backward order."""
        ends = [*self.cuts[1:], num_elements]
        return [range(start, end) for start, end in zip(self.cuts, ends, strict=True)]


@dataclass(frozen=True)
class Plan:
    """How gradients cross the network at one time."""

    ratio: float
    collective: str
    sparsifier: str = "tracked"
    fusion: FusionPlan = FusionPlan()
    schedule: str = "wait-free"
    source: str = "gradient"
    version: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise UserError(
                "a compression ratio is in (0, 1]; 0.01 sends 1% of the gradient",
                field="ratio",
                value=f"{self.ratio:g}",
            )
        catalogue.sparsifiers.find(self.sparsifier)
        catalogue.schedules.find(self.schedule)
        if (self.ratio == 1) != self.is_dense:
            raise UserError(
                f"ratio 1 goes with {' or '.join(DENSE_COLLECTIVES)}, every other ratio with a sparse collective",
                field="collective",
                value=f"{self.ratio:g}/{self.collective}",
            )

    @property
    def is_dense(self) -> bool:
        """Whether the whole gradient is sent."""
        return self.collective_row.is_dense

    @property
    def collective_row(self) -> CollectiveRow:
        """What the catalogue knows of the collective."""
        return catalogue.collectives.find(self.collective)

    @property
    def name(self) -> str:
        """The short text form, ``RATIO/COLLECTIVE``; the same plan in every table and log."""
        return self.collective if self.is_dense else f"{self.ratio:g}/{self.collective}"

    @property
    def local_steps(self) -> int:
        """H: steps that each rank takes by itself before the update that they made is exchanged; 0: gradients are."""
        name, _, steps = self.source.partition(":steps=")
        return int(steps or 1) if name == "update" else 0

    def buffer_costs(self, num_elements: int, num_ranks: int) -> list[Cost]:
        """The closed-form cost of each buffer for a gradient of ``num_elements``."""
        return [
            self.collective_row.cost_at(BYTES_PER_ELEMENT * len(buffer), self.ratio, num_ranks)
            for buffer in self.fusion.buffers(num_elements)
        ]

    def with_version(self, version: int) -> Plan:
        """The same plan under another version."""
        return replace(self, version=version)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``decisions.jsonl`` and for the wire."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Inverse of `to_json`."""
        fusion = data["fusion"]
        return cls(**{**data, "fusion": FusionPlan(tuple(fusion["cuts"]), fusion["selection"])})

    @classmethod
    def parse(cls, text: str, fusion: FusionPlan | None = None) -> Plan:
        """Read ``dense``, ``dense-ring`` or ``0.01/all-gather``.

        Raises `UserError` naming the part that is wrong.
        """
        fusion = fusion or FusionPlan()
        if text == "dense":
            text = "dense-ring"
        if text in DENSE_COLLECTIVES:
            return cls(ratio=1.0, collective=text, fusion=fusion)
        ratio_text, slash, collective = text.partition("/")
        try:
            ratio = float(ratio_text)
        except ValueError:
            slash = ""
        if not slash:
            raise UserError("write dense, or RATIO/COLLECTIVE such as 0.01/all-gather", field="plan", value=text)
        return cls(ratio=ratio, collective=collective, fusion=fusion)


def dense_plan(fusion: FusionPlan | None = None) -> Plan:
    """The plan that sends everything, the fallback of every guard rail."""
    return Plan(ratio=1.0, collective="dense-ring", fusion=fusion or FusionPlan())


def elements_to_send(ratio: float, num_elements: int) -> int:
    """Elements sent of ``num_elements``: k = round(c n), at least 1 and at most n."""
    return max(1, min(num_elements, round(ratio * num_elements)))


def split_elements(ratio: float, offsets: Sequence[int]) -> list[int]:
    """Elements to send of every segment (k) when selection is ahead of fusion; ``offsets`` has one entry more."""
    return [elements_to_send(ratio, end - start) for start, end in pairwise(offsets)]
