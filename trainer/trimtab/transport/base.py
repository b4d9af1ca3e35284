"""The interface of transports: eager point-to-point messages between the ranks of one group.

Messages between two ranks arrive in the order they were sent, so a receive needs no tag: it takes the next message of
that peer. Every wait ends: with the message, or with a `CommunicationError` that names the peer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Reason given by a rank that has left.
HAS_LEFT = "has closed its session, and takes part in no further step"
#: Reason given by a rank whose script has ended with its session open.
HAS_ENDED = "has ended its script, and takes part in no further step"


@dataclass(frozen=True)
class StepTag:
    """The place in training of a message; ranks that are elsewhere find out with its frame."""

    step: int = 0
    plan_version: int = 0
    trial: int = 0
    """Number of the candidate under trial since training began; 0 outside of trials."""

    @property
    def code(self) -> int:
        """The tag in 64 bits: the step's lowest 32, then 16 each of the plan's version and the trial."""
        return (self.step & 0xFFFFFFFF) << 32 | (self.plan_version & 0xFFFF) << 16 | self.trial & 0xFFFF

    @classmethod
    def of_code(cls, code: int) -> StepTag:
        """Return the tag of a `code`."""
        return cls(code >> 32, code >> 16 & 0xFFFF, code & 0xFFFF)

    def __str__(self) -> str:
        trial = f", trial {self.trial}" if self.trial else ""
        return f"step {self.step}, plan version {self.plan_version}{trial}"


class CommunicationError(RuntimeError):
    """An exchange that cannot be finished, because of one rank; raised on every rank of the group."""

    def __init__(self, peer: int, reason: str, *, reported_by: int | None = None) -> None:
        suffix = "" if reported_by is None else f" (reported by rank {reported_by})"
        super().__init__(f"rank {peer}: {reason}{suffix}")
        self.peer = peer
        """The rank at fault, as far as is known."""
        self.reason = reason


def malformed(peer: int, what: str) -> CommunicationError:
    """Return the error for a message that no rank of this version sends; ``what`` the peer sent in it."""
    return CommunicationError(peer, f"sent {what}; do all ranks run the same version of Trimtab?")


def parted(message: Tensor, count: int, sender: int) -> Sequence[Tensor]:
    """Split a message into its blocks; it begins with their lengths.

    Args:
        message: uint8 [length].
        count: Number of blocks.
        sender: Rank that sent it.

    Raises:
        CommunicationError: The lengths are not those of the message.
    """
    head = 8 * count
    lengths = message[:head].clone().view(torch.int64).tolist() if message.numel() >= head else [-1]
    if min(lengths) < 0 or sum(lengths) != message.numel() - head:
        raise malformed(sender, f"{count} blocks whose lengths are not those that it says")
    return message[head:].split_with_sizes(lengths)


class Transport(ABC):
    """Point-to-point messages among ``size`` ranks; used by one thread at a time."""

    rank: int
    size: int
    device: torch.device = torch.device("cpu")
    """Device of all parts of a message."""
    secret: bytes = b""
    """Secret by which the ranks authenticate each other; empty if they have not connected by one."""
    chunk_bytes: int
    """A longer message is best sent as several of this size, so that relays forward one while the next arrives."""
    has_own_all_reduce = False
    """True if the backend sums over ranks by itself, better than messages from here could."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.sequence = 0
        """Number of the exchange under way; ranks that disagree about it find out with the next message."""
        self.step_tag = StepTag()
        """Step, plan and trial of the exchange under way, checked in the same way."""
        self.num_bytes = 0
        """Payload bytes sent so far (frame and packet headers not counted)."""
        self.num_messages = 0
        """Messages sent so far."""

    def send(self, peer: int, *parts: Tensor) -> None:
        """Queue one message to ``peer``, without waiting for the peer.

        Args:
            peer: The receiving rank.
            parts: Contiguous tensors, whose bytes are sent one after another. They must stay as they are until `flush`,
                or
            until the peer's answer to them has come.
        """
        self._count(parts)
        self._send(peer, parts)

    @abstractmethod
    def _send(self, peer: int, parts: tuple[Tensor, ...]) -> None: ...

    @abstractmethod
    def receive(self, peer: int, *parts: Tensor) -> None:
        """Wait for the next message of ``peer``, whose size is that of the parts (contiguous) together."""

    @abstractmethod
    def receive_bytes(self, peer: int) -> Tensor:
        """Wait for the next message of ``peer``, whatever its size: uint8 [length]."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until every part queued by `send` may be changed."""

    @abstractmethod
    def abort(self, peer: int, reason: str) -> None:
        """Give the group up: tell every other rank that ``peer`` is at fault, within a second; never raise."""

    def leave(self, reason: str = HAS_LEFT) -> None:
        """Tell the ranks that expect an exchange of this one that it takes part in none; never raise."""
        self.abort(self.rank, reason)

    def all_reduce(self, pieces: Sequence[Tensor]) -> None:
        """Sum the float32 ``pieces`` over the ranks in place, if `has_own_all_reduce`."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Release what the transport holds; never raise."""

    def _count(self, parts: tuple[Tensor, ...]) -> None:
        self.num_messages += 1
        self.num_bytes += num_bytes(parts)


def num_bytes(parts: Sequence[Tensor]) -> int:
    """Return the size of a message made of these parts."""
    return sum(part.numel() * part.element_size() for part in parts)
