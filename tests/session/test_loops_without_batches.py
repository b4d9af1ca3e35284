"""No loop trains on nothing, or on less than it was given, without a line that says so."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from trimtab.plan.plan import Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.errors import UserError


class Stream(IterableDataset[Any]):
    """So many samples, one after another."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(self._num_samples).float())


def loader_of(num_samples: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(num_samples).float()), **{"batch_size": 2, "shuffle": True} | options)


def open_session(group: Group | None) -> tuple[Session, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return Session(model, optimizer, group=group, plan=Plan.parse("dense"), recorder=Recorder(None)), model


def train(session: Session, model: nn.Module, batches: Iterable[Any]) -> list[float]:
    """The samples of an epoch."""
    seen: list[float] = []
    for batch in batches:
        samples = batch[0] if isinstance(batch, list) else batch
        model(samples.reshape(-1, 1)).square().mean().backward()
        session.step()
        seen += samples.flatten().tolist()
    return seen


def three_epochs(rank: int, size: int) -> tuple[list[list[float]], int]:
    session, model = open_session(Group.connect())
    batches = session.batches(loader_of(32))
    epochs = [train(session, model, batches) for _ in range(3)]
    session.close()
    return epochs, len(batches)


@pytest.mark.pattern("`batches = session.batches(loader)` once, before the epochs", works="each `for` is a new epoch")
def test_batches_that_are_made_once_give_every_epoch(rank_pool: RankPool) -> None:
    (first, length), (second, _) = rank_pool.run_in_process_group(2, three_epochs)
    assert length == 8
    for ours, theirs in zip(first, second, strict=True):
        assert sorted(ours + theirs) == list(range(32))
    assert first[0] != first[1], "shuffled anew"


def test_batches_that_are_made_once_give_every_epoch_to_one_process() -> None:
    session, model = open_session(None)
    batches = session.batches(loader_of(6))
    assert [len(train(session, model, batches)) for _ in range(3)] == [6, 6, 6]
    session.close()


def test_next_draws_from_one_epoch_which_a_loop_goes_on_with() -> None:
    session, _ = open_session(None)
    batches = session.batches(loader_of(8, shuffle=False))
    first = next(batches)[0].tolist()
    assert first + [x for (batch,) in batches for x in batch.tolist()] == list(range(8))
    assert len(list(batches)) == 4, "a new epoch"
    session.close()


def test_a_loop_that_was_left_is_followed_by_a_whole_epoch() -> None:
    session, _ = open_session(None)
    batches = session.batches(loader_of(8))
    for _ in batches:
        break
    assert len(list(batches)) == 4
    session.close()


def shared_twice(rank: int, size: int) -> list[int]:
    session, model = open_session(Group.connect())
    ours = session.batches(loader_of(32))
    wrapped = type("Bar", (), {"iterable": ours, "__iter__": lambda self: iter(self.iterable)})()
    counts = [len(train(session, model, session.batches(each))) for each in (ours, wrapped)]
    session.close()
    return counts


def test_batches_that_are_shared_already_are_not_shared_again(rank_pool: RankPool) -> None:
    assert rank_pool.run_in_process_group(2, shared_twice) == [[16, 16]] * 2


def said_of(rank: int, size: int, loader: Callable[[], Any], num_epochs: int) -> tuple[str, str]:
    """What a rank says on stderr, and the error that ends its training."""
    session, model = open_session(Group.connect() if size > 1 else None)
    data, error = loader(), ""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            for _ in range(num_epochs):
                train(session, model, session.batches(data))
        except UserError as caught:
            error = str(caught)
    session.close()
    return "\n".join(
        line for line in said.getvalue().splitlines() if "loader: " not in line or "left out" in line
    ), error


def of_samples(num_samples: int, **options: Any) -> Callable[[], Any]:
    return lambda: loader_of(num_samples, **options)


SMALL: dict[str, tuple[Callable[[], Any], str]] = {
    "none": (of_samples(0, shuffle=False), "this loop has no batches: DataLoader gives none"),
    "dropped": (of_samples(3, drop_last=True), "this loop has no batches: 3 of 3 samples are left out in each epoch"),
    "a part is dropped": (of_samples(6, drop_last=True), "loader: 2 of 6 samples are left out in each epoch"),
    "a short stream": (
        lambda: DataLoader(Stream(2), batch_size=2),
        "this loop has no batches: 1 of 1 batches are left out in each epoch",
    ),
    "a stream": (lambda: DataLoader(Stream(6), batch_size=2), "loader: 1 of 3 batches are left out in each epoch"),
    "a list": (lambda: [torch.ones(1)] * 3, "loader: 1 of 3 batches are left out in each epoch"),
}


def small(rank: int, size: int) -> list[tuple[str, str]]:
    return [said_of(rank, size, loader, 2) for loader, _ in SMALL.values()]


@pytest.mark.pattern(
    "data sets that are too small for the ranks",
    works="as many batches on each rank; a line says what is left out",
)
def test_data_that_are_too_few_for_the_ranks_are_told_of_once(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, small)
    assert [each for each in second if each != ("", "")] == []
    for (said, error), (_, expected) in zip(first, SMALL.values(), strict=True):
        assert expected in said
        assert len(said.splitlines()) == len(set(said.splitlines()))
        assert error == ""


@pytest.mark.parametrize("num_samples", [1, 3, 5])
def test_every_rank_has_as_many_batches_of_few_samples(num_samples: int, rank_pool: RankPool) -> None:
    counts = rank_pool.run_in_process_group(4, counting, num_samples)
    assert len(set(counts)) == 1
    assert counts[0] >= 1


def counting(rank: int, size: int, num_samples: int) -> int:
    session, _ = open_session(Group.connect())
    num = len(list(session.batches(loader_of(num_samples))))
    session.close()
    return num


def one_process_says() -> list[str]:
    return [said_of(0, 1, loader, 1)[0] for loader in (of_samples(0, shuffle=False), of_samples(8))]


def test_one_process_says_that_there_is_nothing_to_train_on() -> None:
    assert one_process_says() == ["trimtab: this loop has no batches: DataLoader gives none", ""]


@pytest.mark.pattern(
    "a generator that an earlier loop has used up", refused="`is an iterator without batches left; ...`"
)
def test_an_iterator_that_an_earlier_loop_used_up_is_refused(rank_pool: RankPool) -> None:
    for size, answers in ((1, [used_up(0, 1)]), (2, rank_pool.run_in_process_group(2, used_up))):
        for _, error in answers:
            assert error.startswith("loader: 'generator': is an iterator without batches left"), size


def used_up(rank: int, size: int) -> tuple[str, str]:
    return said_of(rank, size, lambda: (torch.ones(1) for _ in range(4)), 2)


def finished(rank: int, size: int) -> str:
    session, _ = open_session(Group.connect())
    session.load_state_dict({"steps": 9, "epochs": 3, "loops": 3, "batches": 0, "of_batches": None})
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert list(session.epochs(3)) == []
    session.close()
    return said.getvalue()


def test_a_checkpoint_after_the_last_epoch_leaves_nothing_to_train_and_says_so(rank_pool: RankPool) -> None:
    first, second = rank_pool.run_in_process_group(2, finished)
    assert "session.epochs(3) has no epoch left to train, since 3 are over" in first
    assert second == ""
