"""The buckets of one fusion plan, and what lies in each between iterations.

Under a schedule that sends everything at once nothing does. Under one that delays, gradients *wait* until their bucket
is sent, and means that have *arrived* wait until the optimizer takes them. Neither is lost by a change of plan: what
lies in the buckets of the old fusion plan is brought to those of the new one.

What lies there is a sum over iterations, with their number. Updates that are averages divide by it where they are
handed out, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trimtab.engine.gradients.flat_buffers import BufferRange, FlatBuffers

#: The iteration of what was carried over from before the schedule was adopted.
CARRIED = -1


@dataclass
class Held:
    """Gradients of one bucket, added up over iterations: this rank's own, or their means over ranks."""

    last: int
    """The newest of the iterations, counted as the schedule does; `CARRIED` where they were before it."""
    count: int
    """Number of iterations."""
    values: Tensor
    """float32 [n]."""

    @property
    def is_finite(self) -> bool:
        """True if all values are finite: what waits has not been looked at before it is sent."""
        return bool(torch.isfinite(self.values).all())


@dataclass
class Bucket:
    """A bucket, and what it holds from one iteration to the next."""

    span: BufferRange
    waiting: list[Held] = field(default_factory=list)
    """This rank's gradients that have not been sent, oldest first."""
    arrived: list[Held] = field(default_factory=list)
    """Means over ranks that no update has taken."""

    @property
    def num_iterations(self) -> int:
        """Number of iterations whose gradients the bucket holds."""
        return sum(held.count for held in (*self.arrived, *self.waiting))

    def to_mean(self) -> None:
        """Replace what is held by its mean over these iterations, as of one iteration."""
        share = 1 / max(1, self.num_iterations)
        for number, held in enumerate((*self.arrived, *self.waiting)):
            held.values, held.count = share * held.values, int(number == 0)

    def waiting_up_to(self, iteration: int) -> list[Held]:
        """Return what waits of iterations up to ``iteration``."""
        return [held for held in self.waiting if held.last <= iteration]

    def add(self, pending: Held, *, joins: bool) -> None:
        """Let gradients wait: together with the last that do, or apart from them."""
        if joins and self.waiting:
            newest = self.waiting[-1]
            self.waiting[-1] = Held(pending.last, newest.count + pending.count, newest.values.add_(pending.values))
        else:
            self.waiting.append(pending)


class Buckets(Sequence[Bucket]):
    """Every bucket of a fusion plan, in backward order."""

    def __init__(self, flat_buffers: FlatBuffers, spans: Sequence[BufferRange]) -> None:
        self._flat_buffers = flat_buffers
        self._buckets = [Bucket(span) for span in spans]
        self.of_tensor: list[list[int]] = [[] for _ in flat_buffers.parameters]
        """By tensor: the buckets that hold a part of it."""
        for number, span in enumerate(spans):
            for index in range(span.first, span.last):
                self.of_tensor[index].append(number)

    def __len__(self) -> int:
        return len(self._buckets)

    def __getitem__(self, number: Any) -> Any:
        return self._buckets[number]

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._buckets)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Every bucket's first element, and that after its last."""
        return [(bucket.span.start, bucket.span.stop) for bucket in self]

    @property
    def are_empty(self) -> bool:
        """True if nothing waits and nothing has arrived."""
        return not any(bucket.waiting or bucket.arrived for bucket in self)

    def clear(self) -> None:
        """Let nothing wait and nothing have arrived: it has been applied."""
        for bucket in self:
            bucket.waiting, bucket.arrived = [], []

    def to_means(self) -> None:
        """Replace what is held by what an averaging update would have taken of it; updates average no longer."""
        for bucket in self:
            bucket.to_mean()

    def take_over(self, old: Buckets) -> None:
        """Hold what the buckets of another fusion plan held, each element once; these buckets hold nothing yet."""
        for target in self:
            sources = [source for source in old if _overlap(source.span, target.span)]
            for source in sources:
                _carry(source.waiting, source.span, target.waiting, target.span)
                _carry(source.arrived, source.span, target.arrived, target.span)
            # All hold gradients of as many iterations; how many of these have arrived is each bucket's own.
            total = max((source.num_iterations for source in sources), default=0)
            arrived = max((sum(held.count for held in source.arrived) for source in sources), default=0)
            for held in target.arrived:
                held.count = arrived if target.waiting else total
            for held in target.waiting:
                held.count = total - arrived

    def state_dict(self) -> list[dict[str, Any]]:
        """Return, by bucket, ``waiting`` and ``arrived``: lists of (last iteration, count, float32 [n])."""
        return [
            {
                name: [(held.last, held.count, held.values) for held in getattr(bucket, name)]
                for name in ("waiting", "arrived")
            }
            for bucket in self
        ]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Load what `state_dict` returned, under the same fusion plan."""
        for bucket, held in zip(self, state, strict=True):
            bucket.waiting = [Held(last, count, values.clone()) for last, count, values in held["waiting"]]
            bucket.arrived = [Held(last, count, values.clone()) for last, count, values in held["arrived"]]


def _overlap(one: BufferRange, other: BufferRange) -> range:
    """Return the elements that lie in both ranges."""
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _carry(before: Sequence[Held], source: BufferRange, here: list[Held], target: BufferRange) -> None:
    """Add what was held in ``source`` to what is in ``target``; of how many iterations it is, the caller says."""
    both = _overlap(source, target)
    for held in before:
        if not here:
            here.append(Held(CARRIED, 0, held.values.new_zeros(target.num_elements)))
        part = held.values[both.start - source.start : both.stop - source.start]
        here[0].values[both.start - target.start : both.stop - target.start] += part
