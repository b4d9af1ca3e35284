"""In one epoch every sample is drawn once, however often the number of ranks changes on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from trimtab.checkpoint.random_state import RandomState
from trimtab.data.loops import Loops
from trimtab.data.position import Position
from trimtab.data.sharded_loader import Loaders

SEED = 3


class Quiet:
    """Stands for all that loops need of a session."""

    can_run_trials = False

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, what: str) -> None:
        self.said.append(what)

    def warn(self, what: str, /, *, on_each: bool = False) -> None:
        self.said.append(what)

    def on_next_batch(self, *, is_outermost: bool) -> None: ...

    def on_epoch_end(self) -> None: ...

    def on_loop_left(self) -> None: ...

    def trials_ended(self, have_begun: bool) -> None: ...


class Stream(IterableDataset[Any]):
    def __init__(self, num: int) -> None:
        self._num = num

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self._num).tolist())


class AsListed(SequentialSampler):
    """A sampler of the script's own, which draws from the global generator."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(len(self.data_source)).tolist())


#: Makes the loader that each rank's script would make.
Make = Callable[[range, int, int, int, bool], Any]


def with_sampler(make: Callable[[range, int, int, bool], Any]) -> Make:
    def loader(data: range, batch: int, rank: int, num_ranks: int, drop_last: bool) -> Any:
        return DataLoader(data, batch, sampler=make(data, rank, num_ranks, drop_last), drop_last=drop_last)

    return loader


def by_batches(data: range, batch: int, rank: int, num_ranks: int, drop_last: bool) -> Any:
    return DataLoader(data, batch_sampler=iter_again(BatchSampler(RandomSampler(data), batch, drop_last)))


class iter_again:  # noqa: N801
    """A sampler of batches that is none of torch's."""

    def __init__(self, sampler: Any) -> None:
        self._own = sampler

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


OF_SAMPLES: dict[str, Make] = {
    "in order": lambda data, batch, rank, size, drop: DataLoader(data, batch, drop_last=drop),
    "shuffled": lambda data, batch, rank, size, drop: DataLoader(data, batch, shuffle=True, drop_last=drop),
    "own sampler": with_sampler(lambda data, *_: AsListed(data)),
    "subset": with_sampler(lambda data, *_: SubsetRandomSampler(data)),
    "distributed": with_sampler(
        lambda data, rank, size, drop: DistributedSampler(data, size, rank, seed=1, drop_last=drop)
    ),
}
OF_BATCHES: dict[str, Make] = {
    "batch sampler": by_batches,
    "stream": lambda data, batch, rank, size, drop: DataLoader(Stream(len(data)), batch, drop_last=drop),
    "list": lambda data, batch, rank, size, drop: [
        torch.tensor(data[i : i + batch]) for i in range(0, len(data), batch)
    ],
}


class Run:
    """An epoch that is trained by one number of ranks after another."""

    def __init__(self, make: Make, num: int, keeps_generators: bool = True) -> None:
        self.make, self.data, self.seen = make, range(num), list[int]()
        self.position, self.began = Position(), None
        self.said: list[str] = []
        self.keeps_generators = keeps_generators
        self.is_over = False

    def train(self, num_ranks: int, batch: int, drop_last: bool, num_steps: int | None) -> None:
        """Train for so many steps, or to the end of the epoch."""
        ends, positions, begun = [], [], []
        for rank in range(num_ranks):
            torch.manual_seed(100 * num_ranks + rank)  # unlike on each rank, and after each restart
            quiet = Quiet()
            loops = Loops(Loaders(rank, num_ranks, SEED), quiet, quiet, quiet)
            loops.resume(self.position, self.began)
            batches = loops.batches(self.make(self.data, batch, rank, num_ranks, drop_last), sharded=False)
            iterator, steps = iter(batches), 0
            while steps != num_steps and (drawn := next(iterator, None)) is not None:
                self.seen += drawn.tolist()
                loops.stepped(in_trial=False)
                steps += 1
            ended = steps != num_steps
            if not ended:
                positions.append(loops.position(0))
                begun.append(loops.generators_at_begin)
            ends.append((steps, ended))
            self.said += quiet.said
        assert len(set(ends)) == 1, "all ranks take as many steps"
        assert len(set(positions)) <= 1
        self.is_over = ends[0][1]
        if positions:
            self.position = Position.from_state(positions[0].to_state())
            kept = begun[0]
            self.began = RandomState.from_state(kept.to_state()) if kept is not None and self.keeps_generators else None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OF_SAMPLES | OF_BATCHES)),
    st.integers(1, 90),
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_an_epoch_is_drawn_once_whatever_the_numbers_of_ranks(
    kind: str, num: int, drop_last: bool, segments: Sequence[tuple[int, int, int]], last_ranks: int
) -> None:
    make = (OF_SAMPLES | OF_BATCHES)[kind]
    batch_of_all = segments[0][1]
    is_stream = kind in ("stream", "list")  # what a process that is alone draws of it, nobody can know
    run = Run(make, num)
    rounds: list[tuple[int, int]] = []
    """Ranks and batch size of the segment that drew last, and of those after it that drew nothing."""
    for num_ranks, of_rank, num_steps in [*segments, (last_ranks, segments[-1][1], None)]:
        if not run.is_over:
            batch = batch_of_all if kind in OF_BATCHES else of_rank
            num_ranks = max(2, num_ranks) if is_stream else num_ranks
            before = len(run.seen)
            run.train(num_ranks, batch, drop_last, num_steps)
            rounds = [*(rounds if len(run.seen) == before else ()), (num_ranks, batch)]
    assert run.is_over
    times = Counter(run.seen)
    if kind in OF_SAMPLES and not drop_last:
        assert set(times) == set(range(num)), "none is left out"
        assert sum(times.values()) - num < rounds[0][0], "what makes the last round even, and nothing else"
    else:
        assert max(times.values(), default=1) == 1, "none is drawn twice"
        in_a_round = max(ranks * batch for ranks, batch in rounds)
        assert num - len(times) < in_a_round + (batch if kind in OF_BATCHES and drop_last else 0)


def test_a_state_of_an_earlier_version_is_read() -> None:
    first = {"steps": 7, "epochs": 1, "loops": 1, "batches": 3, "of_batches": 9}
    assert Position.from_state(first) == Position(7, 1, 1, 3, 9)


@pytest.mark.parametrize(
    ("make", "num_after", "keeps", "reason"),
    [
        ("shuffled", 24, False, "a single process drew it by its random generators, which were not kept"),
        ("shuffled", 23, True, "it has 23 samples, and that of the earlier run had 24"),
        ("stream", 24, True, "the earlier run was in a loop of another length on each of 1 ranks"),
    ],
)
def test_a_loop_that_cannot_go_on_begins_anew_and_says_why(make: str, num_after: int, keeps: bool, reason: str) -> None:
    run = Run((OF_SAMPLES | OF_BATCHES)[make], 24, keeps_generators=keeps)
    run.train(1, 2, False, 4)
    run.data, run.seen = range(num_after), []
    run.train(2, 2, False, None)
    assert set(run.seen) >= set(range(num_after))
    assert f"resuming: this loop starts from its beginning, because {reason}" in run.said


def test_a_loop_over_validation_data_comes_before_the_one_that_goes_on() -> None:
    run = Run(OF_SAMPLES["shuffled"], 24)
    run.train(2, 2, False, 4)
    for rank in range(3):
        quiet = Quiet()
        loops = Loops(Loaders(rank, 3, SEED), quiet, quiet, quiet)
        loops.resume(run.position)
        assert len(list(loops.batches(DataLoader(range(9), 3), sharded=False))) == 1
        for drawn in loops.batches(DataLoader(range(24), 2, shuffle=True), sharded=False):
            run.seen += drawn.tolist()
            loops.stepped(in_trial=False)
        assert not [line for line in quiet.said if "from its beginning" in line]
    assert set(run.seen) == set(range(24))
    assert len(run.seen) == 24 + 1, "one makes the last round of three even"
