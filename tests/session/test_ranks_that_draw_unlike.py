"""Ranks that share a loader draw alike: where one has other data, or loops alone, rank 0 says so."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset
from trimtab.data.checks import Look, digest, mistakes
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

NUM_SAMPLES = 32


class Stream(IterableDataset[Tensor]):
    """Samples of rank ``rank`` of two; all of them where that is None."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank

    def __iter__(self) -> Iterator[Tensor]:
        samples = torch.arange(NUM_SAMPLES, dtype=torch.float32)
        return iter(samples if self._rank is None else samples[self._rank :: 2])


class EveryOther(Sampler[int]):
    """Draws a rank's half by itself, and does not show it."""

    def __init__(self, rank: int) -> None:
        self._first = rank

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._first, NUM_SAMPLES, 2))

    def __len__(self) -> int:
        return NUM_SAMPLES // 2


def numbers(first: int = 0) -> TensorDataset:
    return TensorDataset(torch.arange(first, first + NUM_SAMPLES, dtype=torch.float32))


def open_session() -> tuple[Session, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return Session(model, optimizer, group=Group.connect(), plan=Plan.parse("dense"), recorder=Recorder(None)), model


def train(session: Session, model: nn.Module, batches: Any) -> list[float]:
    seen: list[float] = []
    for batch in batches:
        samples = batch[0] if isinstance(batch, list) else batch
        model(samples.reshape(-1, 1)).square().mean().backward()
        session.step()
        seen += samples.flatten().tolist()
    return seen


#: Loaders by rank, and whether their ranks' data differ.
LOADERS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "a stream for all": (lambda rank: DataLoader(Stream(None), 4), False),
    "a stream of its own": (lambda rank: DataLoader(Stream(rank), 4), True),
    "a sampler of its own": (lambda rank: DataLoader(numbers(), 4, sampler=EveryOther(rank)), True),
    "a shuffled data set": (lambda rank: DataLoader(numbers(), 4, shuffle=True), False),
    "a data set of its own": (lambda rank: DataLoader(numbers(100 * rank), 4, shuffle=True), True),
    "lists": (lambda rank: [torch.ones(2)] * 4, False),
}


def unlike(rank: int, size: int) -> list[str]:
    said = []
    for make, _ in LOADERS.values():
        session, model = open_session()
        with contextlib.redirect_stderr(io.StringIO()) as text:
            train(session, model, session.batches(make(rank)))
        session.close()
        said.append(text.getvalue())
    return said


@pytest.mark.pattern(
    "a loader that shards without showing it",
    works="a line says so; set `sharded=True`",
)
def test_a_loader_that_gives_ranks_unlike_data_is_told_of(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, unlike)
    told = "gives rank 1 other data than rank 0"
    assert [told in text for text in first] == [differ for _, differ in LOADERS.values()]
    assert "session.batches(loader, sharded=True)" in first[1]
    assert second == [""] * len(LOADERS)


def looping_alone(rank: int, size: int) -> tuple[list[list[float]], str]:
    session, model = open_session()
    train_data, validation_data = DataLoader(numbers(), 4, shuffle=True), DataLoader(numbers(100), 2, shuffle=True)
    epochs = []
    with contextlib.redirect_stderr(io.StringIO()) as said:
        for _ in range(3):
            epochs.append(train(session, model, session.batches(train_data)))
            if session.is_main:
                list(session.batches(validation_data))
    session.close()
    return epochs, said.getvalue()


@pytest.mark.pattern(
    "evaluation over `session.batches` on rank 0 alone",
    works="a line says that it sees a share only",
)
def test_a_rank_that_loops_alone_is_told_of_and_shuffles_as_the_others_do(rank_pool: RankPool) -> None:
    (first, said), (second, _) = rank_pool.run_in_process_group(2, looping_alone)
    for ours, theirs in zip(first, second, strict=True):
        assert sorted(ours + theirs) == list(range(NUM_SAMPLES))
    assert first[0] != first[1]
    assert said.count("rank 0 looped over session.batches, and other ranks did not") == 1


def looping_over_its_own(rank: int, size: int) -> str:
    session, model = open_session()
    with contextlib.redirect_stderr(io.StringIO()) as said:
        train(session, model, session.batches(DataLoader(numbers(), 4), sharded=True))
        if session.is_main:
            list(session.batches(DataLoader(numbers(100), 2), sharded=True))
        session.all_reduce(0.0)
    session.close()
    return said.getvalue()


def test_a_rank_may_loop_alone_over_data_that_the_script_has_sharded(rank_pool: RankPool) -> None:
    for said in rank_pool.run_in_process_group(2, looping_over_its_own):
        assert "looped over session.batches" not in said


def reporting(rank: int, size: int, reduces: bool) -> str:
    session, model = open_session()
    train(session, model, session.batches(DataLoader(numbers(), 4)))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        accuracy = float(len(list(session.batches(DataLoader(numbers(), 4)))))
        session.report(accuracy=session.all_reduce(accuracy) if reduces else accuracy)
    session.close()
    return said.getvalue()


@pytest.mark.parametrize("reduces", [True, False])
def test_a_metric_of_a_share_that_was_not_added_up_is_told_of(reduces: bool, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, reporting, reduces)
    assert ("session.report() got figures of rank 0's share of the data alone, 1 / 2" in first) is not reduces
    assert second == ""


def evaluating_at_the_end(rank: int, size: int, reduces: bool) -> str:
    """Rank 0 evaluates after the last step, and reports nothing."""
    session, model = open_session()
    train(session, model, session.batches(DataLoader(numbers(), 4)))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        if session.is_main:
            list(session.batches(DataLoader(numbers(), 4)))
        if reduces:
            session.all_reduce(0.0)
        session.close()
    return said.getvalue()


@pytest.mark.parametrize("reduces", [True, False])
def test_a_share_that_was_evaluated_after_the_last_step_is_told_of(reduces: bool, rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, evaluating_at_the_end, reduces)
    assert ("the last loop over session.batches saw rank 0's share of the data alone, 1 / 2" in first) is not reduces
    assert second == ""


def test_looks_at_the_same_batch_are_the_same() -> None:
    batch = {"x": torch.ones(3), "y": [1, "a", None]}
    assert digest([batch]) == digest([{"x": torch.ones(3), "y": [1, "a", None]}])
    assert digest([batch]) != digest([{**batch, "x": torch.zeros(3)}])
    assert mistakes([[Look("A")], [Look("A", "x")]]) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.empty(2, device="meta"),
    ],
    ids=["sparse", "nested", "meta"],
)
def test_a_batch_of_any_layout_is_looked_at(make: Callable[[], Tensor]) -> None:
    assert digest([make()]) == digest([make()])
