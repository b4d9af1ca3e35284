"""Some of a transport's ranks as a transport of their own: teams, and the levels of a hierarchy."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from trimtab.transport.base import Transport


class Subgroup(Transport):
    """The ``ranks`` of ``transport``, renumbered from 0 in the order given; the same sequence on each of them.

    Messages cross the connections of ``transport``, which counts them as well and checks its own sequence and step tag.
    If two subgroups hold the same two ranks, the next message between these is the next of either. An error names a
    rank by its number in ``transport``.
    """

    def __init__(self, transport: Transport, ranks: Sequence[int]) -> None:
        """Make the subgroup; raise ValueError if ``ranks`` lack this rank, or hold one twice."""
        if transport.rank not in ranks or len(set(ranks)) != len(ranks):
            raise ValueError(f"a subset holds this rank, {transport.rank}, and each rank once; not {list(ranks)}")
        super().__init__(ranks.index(transport.rank), len(ranks))
        self.device = transport.device
        self.chunk_bytes = transport.chunk_bytes
        self._transport = transport
        self._ranks = tuple(ranks)

    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None:
        self._transport.send(self._ranks[peer], *parts)

    def receive(self, peer: int, *parts: Tensor) -> None:
        """See `Transport.receive`."""
        self._transport.receive(self._ranks[peer], *parts)

    def receive_bytes(self, peer: int) -> Tensor:
        """See `Transport.receive_bytes`."""
        return self._transport.receive_bytes(self._ranks[peer])

    def flush(self) -> None:
        """See `Transport.flush`."""
        self._transport.flush()

    def abort(self, peer: int, reason: str) -> None:
        """Give the whole group up, not these ranks alone: the others would wait for them."""
        self._transport.abort(self._ranks[peer], reason)

    def close(self) -> None:
        """Do nothing: the connections belong to the transport."""
