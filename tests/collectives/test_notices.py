"""What ranks of a process group tell each other where its backend tells nothing."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist
from rank_pool import RankPool
from trimtab.collectives.group import Group
from trimtab.collectives.notices import Notices
from trimtab.collectives.process_group import ProcessGroupTransport
from trimtab.collectives.transport import CommunicationError
from trimtab_api.errors import UserError


def expecting_rank_1(rank: int, size: int, event: str) -> str:
    """What a rank hears that waits for rank 1, which fails or leaves in place of sending."""
    group = Group(ProcessGroupTransport(None, deadline=5))

    def fail() -> None:
        raise ValueError("out of memory")

    if rank == 1:
        if event == "fail":
            with pytest.raises(ValueError, match="out of memory"):
                group.submit(fail).result(30)
        group.close()
        return ""
    try:
        group.submit(lambda: group.transport.receive(1, torch.empty(1))).result(30)
    except CommunicationError as error:
        return str(error)
    return "it has come"


def test_the_cause_of_a_failure_is_told_and_who_it_was(rank_pool: RankPool) -> None:
    heard = rank_pool.run_in_process_group(3, expecting_rank_1, "fail")
    assert heard[0] == heard[2] == "rank 1: failed: ValueError: out of memory"


def test_who_has_left_is_told_to_who_expects_more(rank_pool: RankPool) -> None:
    heard = rank_pool.run_in_process_group(3, expecting_rank_1, "leave")
    for each in (heard[0], heard[2]):  # which of them finds it first, and tells the other, is open
        assert each.startswith("rank 1: has closed its session, and takes part in no further step")


def test_a_watcher_hears_of_a_failure_and_of_no_leaving() -> None:
    store = dist.HashStore()
    here, there = Notices(store, 0), Notices(store, 1)
    heard = threading.Event()
    here.watch(heard.set)
    there.post_leaving()
    assert here.has_left(1)
    assert not here.has_left(0)
    assert here.failure() is None
    there.post_failure(2, "lost its link")
    here.post_failure(1, "went away")  # the first is heard
    assert heard.wait(30)
    assert here.failure() == (1, 2, "lost its link")
    here.close()


def test_a_store_that_is_gone_is_no_further_failure() -> None:
    class Gone:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("connection reset")

    notices = Notices(Gone(), 0)
    notices.post_failure(1, "lost")
    notices.post_leaving()
    assert notices.failure() is None
    assert not notices.has_left(1)


def test_a_torch_whose_stores_threads_cannot_share_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dist.Store, "clone")
    with pytest.raises(UserError, match=r"torch: '.*': ranks on GPUs need 2\.8 or later; upgrade it"):
        ProcessGroupTransport(None, deadline=5)
