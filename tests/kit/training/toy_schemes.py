"""A collective and a sparsifier that carry state from step to step, to prove that nothing happens to it unseen."""

from __future__ import annotations

from typing import Any

from trimtab.collectives.all_gather import AllGather
from trimtab.sparsifiers.topk import TopK
from trimtab_api import catalogue


class Ledger(AllGather):
    """All-gather that counts, for each range of the gradient, the exchanges of it that were committed."""

    def __init__(self, group: Any) -> None:
        super().__init__(group)
        self.counts: dict[tuple[int, int], int] = {}
        self._proposed: list[tuple[int, int]] = []

    def prepare(self, exchange, selector):
        self._proposed.append((exchange.start, exchange.start + exchange.out.numel()))
        return super().prepare(exchange, selector)

    def commit(self) -> None:
        for key in self._proposed:
            self.counts[key] = self.counts.get(key, 0) + 1
        self._proposed = []

    def discard(self) -> None:
        self._proposed = []

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts, self._proposed = dict(state["counts"]), []

    def rebucket(self, old, new) -> None:
        """A new range was exchanged as often as the least of the old ones that it has a part of."""
        before = {key: self.counts.get(key, 0) for key in old}
        overlapping = {
            key: [count for (start, stop), count in before.items() if start < key[1] and key[0] < stop] for key in new
        }
        self.counts = {key: min(counts, default=0) for key, counts in overlapping.items()}


class Memory(TopK):
    """Top-k that remembers how many elements of each buffer were sent, its own or another rank's."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}

    def commit(self, sent=()) -> None:
        for one in sent:
            self.sent[one.start] = self.sent.get(one.start, 0) + one.indices.numel()

    def state_dict(self) -> dict[str, Any]:
        return {"sent": dict(self.sent)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sent = dict(state["sent"])


def register() -> None:
    """Let plans of this process name them."""
    ledger, memory = (f"kit.training.toy_schemes:{each.__name__}" for each in (Ledger, Memory))
    catalogue.collectives.add(catalogue.Collective("toy-ledger", "counts", ledger, family="toy"))
    catalogue.sparsifiers.add(catalogue.Sparsifier("toy-memory", "remembers", memory))
