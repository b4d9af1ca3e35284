"""What went on in one profiled step, in the words of Horovod's timeline, with COMPRESS beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.plan.plan import Plan


class Span(NamedTuple):
    """Something that went on from one moment to another, by `time.perf_counter`."""

    row: str
    """Row of the timeline: ``computing``, ``compressing``, ``link 0``, ``buffer 0``."""
    phase: str
    name: str
    begin: float
    end: float


def spans_of(
    pending_exchanges: Sequence[PendingExchange], completed: dict[int, float], plan: Plan, names: Sequence[str]
) -> list[Span]:
    """Return the spans of a step's exchanges.

    Args:
        pending_exchanges: The exchanges, all of which are over.
        completed: By tensor, when its gradient was complete, in seconds of `time.perf_counter`.
        plan: The plan that they followed.
        names: The tensors' names.
    """
    exchange = "ALLGATHER" if plan.row.pattern == "all-gather" else "ALLREDUCE"
    spans = []
    for pending_exchange in pending_exchanges:
        span, handle = pending_exchange.span, pending_exchange.handle
        row = f"buffer {pending_exchange.send.bucket}"
        name = names[span.first] if span.last == span.first + 1 else f"{names[span.first]} to {names[span.last - 1]}"
        first = min((completed[index] for index in range(span.first, span.last) if index in completed), default=None)
        if first is not None and pending_exchange.payload.has_present:
            spans.append(Span(row, "WAIT_FOR_OTHER_TENSOR_DATA", name, first, max(first, handle.queued_at)))
        compress = (handle.compress_began_at, handle.prepared_at)
        crossing = (handle.exchange_began_at, handle.ended_at)
        spans.append(Span(row, "QUEUE", name, handle.queued_at, compress[0]))
        spans.append(Span(row, "COMPRESS", name, *compress))
        spans.append(Span(row, "QUEUE", name, compress[1], crossing[0]))
        spans.append(Span(row, exchange, name, *crossing))
        spans.append(Span("compressing", "COMPRESS", row, *compress))
        spans.append(Span(f"link {pending_exchange.send.link}", exchange, row, *crossing))
    return spans


@dataclass(frozen=True)
class TracedStep:
    """One profiled step, some of whose exchanges may still be under way."""

    step: int
    plan: Plan
    began: float
    ended: float
    spans: Sequence[Span]
    """Spans of all but the step's exchanges."""
    completed: dict[int, float]
    """By tensor: when its gradient was complete."""
    sent: PendingExchanges
    """Its exchanges."""

    def line(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the line of ``trace.jsonl``, once the exchanges are over; times are still by `time.perf_counter`.

        Args:
            names: The tensors' names.
        """
        whole = Span("step", "STEP", f"step {self.step}", self.began, self.ended)
        exchanges = spans_of(self.sent, self.completed, self.plan, names)
        return {
            "step": self.step,
            "plan": self.plan.name,
            "spans": [each._asdict() for each in (whole, *self.spans, *exchanges)],
        }
