"""Ranks of another launcher meet in a store that outlives them, as torchrun's does when it restarts its workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import permutations

import pytest
from kit.run_processes import wait_until
from torch.distributed import TCPStore
from trimtab.transport.base import CommunicationError
from trimtab.transport.rendezvous import torch_store as store_rendezvous
from trimtab.transport.rendezvous.tcp import RendezvousResult
from trimtab.transport.rendezvous.torch_store import meet_in_store

NUM_RANKS = 3
PATIENCE = 60.0


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """The store that a torchrun agent serves through all attempts of its workers."""
    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=PATIENCE), wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    return store


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(NUM_RANKS) as pool:
        yield pool


def coming(
    threads: ThreadPoolExecutor, store: TCPStore, rank: int, attempt: int, timeout: float
) -> Future[RendezvousResult]:
    def come() -> RendezvousResult:
        return meet_in_store("127.0.0.1", store.port, rank, NUM_RANKS, timeout, endpoint={"of": [rank, attempt]})[0]

    return threads.submit(come)


def has_left_its_card(store: TCPStore, rank: int, before: bytes | None) -> bool:
    key = f"trimtab/endpoint/{rank}"
    return store.check([key]) and store.get(key) != before


@pytest.mark.parametrize("order", list(permutations(range(NUM_RANKS))))
def test_a_restarted_attempt_reads_nothing_of_the_one_before(
    agent: TCPStore, threads: ThreadPoolExecutor, order: tuple[int, ...]
) -> None:
    for attempt in range(3):
        started = []
        for rank in order:  # each has seen what the attempt before left before the next one comes
            key = f"trimtab/endpoint/{rank}"
            before = agent.get(key) if agent.check([key]) else None
            started.append(coming(threads, agent, rank, attempt, PATIENCE))
            wait_until(lambda rank=rank, before=before: has_left_its_card(agent, rank, before))
        met = [each.result(PATIENCE) for each in started]
        assert {each.attempt for each in met} == {met[0].attempt}
        assert len({each.secret for each in met}) == 1
        left = b"".join(agent.get(f"trimtab/{key}") for key in ("answer/0", "endpoint/0", "endpoint/1", "confirmed/1"))
        assert met[0].secret.hex().encode() not in left  # or whoever reads the store knows it
        for each in met:
            assert each.endpoints == [{"of": [rank, attempt]} for rank in range(NUM_RANKS)]


def test_a_rank_that_came_only_to_the_attempt_before_is_named(
    agent: TCPStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in [coming(threads, agent, rank, 0, PATIENCE) for rank in range(NUM_RANKS)]:
        each.result(PATIENCE)
    monkeypatch.setattr(store_rendezvous, "_QUIET_SECONDS", 0.0)
    for each in [coming(threads, agent, rank, 1, 1.0) for rank in (0, 1)]:
        with pytest.raises(CommunicationError, match="rank 2: did not come"):
            each.result(PATIENCE)


DIGITS = "ab" * 16
CARD = {"endpoint": {}, "token": DIGITS, "public": "09" + "00" * 31}
BAD_CARDS = [
    b"",
    b"{",
    b"\xff",
    b"[" * 100_000,
    b"7",
    *(
        json.dumps(CARD | wrong).encode()
        for wrong in (
            {"endpoint": None},
            {"endpoint": [1]},
            {"token": 7},
            {"token": "x" * 32},
            {"public": None},
            {"public": "zz"},
            {"public": ""},
            {"public": "00" * 32},
            {"public": "00" * 10_000},
        )
    ),
]


@pytest.mark.parametrize("bad", BAD_CARDS, ids=range(len(BAD_CARDS)))
def test_rank_0_names_a_rank_that_leaves_what_no_rank_leaves(
    agent: TCPStore, threads: ThreadPoolExecutor, bad: bytes
) -> None:
    agent.set("trimtab/endpoint/1", json.dumps(CARD))
    agent.set("trimtab/endpoint/2", bad)
    with pytest.raises(CommunicationError, match="rank 2: sent "):
        coming(threads, agent, 0, 0, PATIENCE).result(PATIENCE)


def test_a_value_too_large_is_refused(
    agent: TCPStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_rendezvous, "_MOST_BYTES", 1000)
    agent.set("trimtab/endpoint/1", json.dumps(CARD | {"endpoint": {"host": "x" * 1000}}))
    with pytest.raises(CommunicationError, match=r"rank 1: sent \d+ bytes to where the ranks meet, where 1000 are"):
        coming(threads, agent, 0, 0, PATIENCE).result(PATIENCE)


def test_rank_0_names_a_rank_that_confirms_by_what_is_no_attempt(agent: TCPStore, threads: ThreadPoolExecutor) -> None:
    for rank in (1, 2):
        agent.set(f"trimtab/endpoint/{rank}", json.dumps(CARD))
    agent.set("trimtab/confirmed/1", json.dumps(DIGITS))  # of another attempt
    agent.set("trimtab/confirmed/2", json.dumps({"attempt": 7}))
    with pytest.raises(CommunicationError, match="rank 2: sent no number of this attempt"):
        coming(threads, agent, 0, 0, PATIENCE).result(PATIENCE)


BAD_ANSWERS = [
    {"endpoints": [{}, {}]},
    {"endpoints": None},
    {"endpoints": [{}, 7, {}]},
    {"sealed": [DIGITS]},
    {"sealed": ["", 7, ""]},
    {"sealed": ["", DIGITS, ""], "final": True},
    {"tokens": [DIGITS, None]},
    {"tokens": 7},
    {"attempt": "7"},
    {"public": "zz"},
    {"public": "00" * 32, "final": True},
]


@pytest.mark.parametrize("wrong", BAD_ANSWERS, ids=range(len(BAD_ANSWERS)))
def test_a_rank_names_rank_0_where_its_answer_is_none(
    agent: TCPStore, threads: ThreadPoolExecutor, wrong: dict[str, object]
) -> None:
    mine = coming(threads, agent, 1, 0, PATIENCE)
    wait_until(lambda: has_left_its_card(agent, 1, None))
    token = json.loads(agent.get("trimtab/endpoint/1"))["token"]
    endpoints: dict[str, object] = {
        "endpoints": [{}, {}, {}],
        "sealed": ["", DIGITS, ""],
        "tokens": [DIGITS, token, DIGITS],
    }
    answer = endpoints | {"attempt": DIGITS, "public": CARD["public"], "final": False} | wrong
    if isinstance(wrong.get("tokens"), list):
        answer["tokens"] = [DIGITS, token]
    agent.set("trimtab/answer/0", json.dumps(answer))
    with pytest.raises(CommunicationError, match="rank 0: sent "):
        mine.result(PATIENCE)
