"""Which faults a soak makes, in which order and how far apart: all of it drawn from a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

#: Ranks, one on each emulated host.
NUM_RANKS = 4


class Kind(StrEnum):
    """What happens to the job; its value is the name in the report."""

    KILL_RANK = "kill -9 of a rank"
    TERMINATE_RANK = "SIGTERM to a rank"
    MEMORY_LIMIT = "memory limit of a rank"
    STOP_RANK = "stop and continue of a rank"
    STOP_RANK_LONG = "stop of a rank beyond the timeout"
    KILL_MONITOR = "kill -9 of a monitor"
    STOP_MONITOR = "stop and continue of a monitor"
    CUT_LINK = "one link cut"
    FLAP = "a host's links flap"
    LOSS = "packet loss at a host"
    SLOW_LINK = "a host's network 100 times slower"
    PARTITION = "partition, two hosts each"
    PARTITION_LONG = "partition beyond the timeout"
    FULL_DISK = "full checkpoint volume"
    UNWRITABLE = "read-only checkpoint volume"
    SLOW_VOLUME = "slow checkpoint volume"
    CLOCK_STEP = "clock step of all hosts"
    TERMINATE_RUN = "SIGTERM to the whole run"
    KILL_RUN = "kill -9 of the launcher"


#: Faults after which all ranks must have started again.
RESTARTING = frozenset(
    {
        Kind.KILL_RANK,
        Kind.TERMINATE_RANK,
        Kind.STOP_RANK_LONG,
        Kind.PARTITION_LONG,
        Kind.TERMINATE_RUN,
        Kind.KILL_RUN,
    }
)
#: Faults during which training goes on as if nothing had happened.
HARMLESS = frozenset(
    {
        Kind.KILL_MONITOR,
        Kind.STOP_MONITOR,
        Kind.FULL_DISK,
        Kind.UNWRITABLE,
        Kind.SLOW_VOLUME,
        Kind.CLOCK_STEP,
    }
)
#: Faults that cost no step at all, since every rank saves before it ends.
SAVED_BEFORE = frozenset({Kind.TERMINATE_RANK, Kind.TERMINATE_RUN})
#: Seconds for which each fault that ends by itself lasts: shortest and longest.
_LASTS = {
    Kind.MEMORY_LIMIT: (6.0, 6.0),
    Kind.STOP_RANK: (1.0, 4.0),
    Kind.STOP_RANK_LONG: (25.0, 27.0),
    Kind.STOP_MONITOR: (2.0, 6.0),
    Kind.CUT_LINK: (1.0, 4.0),
    Kind.FLAP: (2.0, 5.0),
    Kind.LOSS: (3.0, 6.0),
    Kind.SLOW_LINK: (3.0, 6.0),
    Kind.PARTITION: (1.0, 4.0),
    Kind.PARTITION_LONG: (25.0, 27.0),
    Kind.FULL_DISK: (4.0, 7.0),
    Kind.UNWRITABLE: (4.0, 7.0),
    Kind.SLOW_VOLUME: (4.0, 7.0),
    Kind.CLOCK_STEP: (2.0, 4.0),
}
#: How often each kind comes in one deck; those that are not named come once. A start of all ranks takes long.
_OFTEN = {
    Kind.KILL_RANK: 2,
    Kind.STOP_RANK: 3,
    Kind.CUT_LINK: 3,
    Kind.LOSS: 3,
    **dict.fromkeys((Kind.FLAP, Kind.SLOW_LINK, Kind.PARTITION, Kind.KILL_MONITOR, Kind.STOP_MONITOR), 2),
    **dict.fromkeys((Kind.FULL_DISK, Kind.UNWRITABLE, Kind.SLOW_VOLUME, Kind.CLOCK_STEP), 2),
}
#: Seconds between a recovery and the next fault: shortest and longest.
_GAPS = (0.2, 4.0)
#: Seconds that a start of all ranks is counted with, to fill the minutes that were asked for.
_START_SECONDS = 15.0
#: Plans that a soak trains by, each held for a whole soak.
FAMILIES = (
    "0.05/all-gather",
    "0.05/exdyna/sparsifier=sidco",
    "0.1/spardl/sparsifier=mstopk",
    "0.1/all-gather/source=update:steps=4",
    "0.05/ok-topk",
    "0.1/all-gather/wire=int8",
    "0.1/all-gather/schedule=priority",
    "dense",
    "adaptive",
)


@dataclass(frozen=True)
class Fault:
    """One fault of a plan."""

    kind: Kind
    gap: float
    """Seconds after the recovery from the fault before it."""
    seconds: float
    """How long it lasts; 0: it is over at once."""
    target: int
    """The rank, or its host or monitor."""
    other: int
    """The other end of a link, or the target's companion in a partition."""


def plan_faults(seed: int, minutes: float) -> list[Fault]:
    """Draw the faults of about so many minutes; the same seed begins with the same faults, however many minutes."""
    draw = random.Random(seed)
    faults: list[Fault] = []
    deck: list[Kind] = []
    left = minutes * 60.0
    while left > 0:
        if not deck:
            deck = [kind for kind in Kind for _ in range(_OFTEN.get(kind, 1))]
            draw.shuffle(deck)
        fault = _draw_fault(draw, deck.pop())
        left -= fault.gap + fault.seconds + (_START_SECONDS if fault.kind in RESTARTING else 1.0)
        faults.append(fault)
    return faults


def _draw_fault(draw: random.Random, kind: Kind) -> Fault:
    target, other = draw.sample(range(NUM_RANKS), 2)
    return Fault(kind, draw.uniform(*_GAPS), draw.uniform(*_LASTS.get(kind, (0.0, 0.0))), target, other)


def draw_family(seed: int) -> str:
    """Return the plan that the soak of this seed trains by; seeds in a row take turns."""
    return FAMILIES[seed % len(FAMILIES)]
