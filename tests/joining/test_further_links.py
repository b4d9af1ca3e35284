"""Ranks that connect over a second interface, which a job names and every worker must have, or over the first again."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from kit.rank_pool import RankPool
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import gather_numbers
from trimtab.transport.rendezvous.mesh import Listener
from trimtab_api.errors import UserError


def joined(group: Group, interfaces: list[str | None]) -> tuple[str | None, int, tuple[float, ...]]:
    leave_further_links(group)  # which a test before this one, of the ranks that are kept, may have joined
    said, slowness = None, (1.0,)
    try:
        slowness = extra_links.join(group, interfaces[group.rank], b"secret", 30.0)
    except UserError as error:
        said = str(error)
    num_links = 1 + len(group.extra_links)
    for link in (group, *group.extra_links):
        assert gather_numbers(link, link.rank) == list(range(group.size))
    leave_further_links(group)
    return said, num_links, slowness


def joined_again(group: Group, num_links: int) -> int:
    leave_further_links(group)
    assert extra_links.join(group, None, b"secret", 30.0) == (1.0,)
    links = group.join_links(num_links)
    assert group.join_links(num_links) == links, "those that there are stay"
    assert len({link.transport for link in links}) == num_links
    for link in links:
        assert gather_numbers(link, link.rank) == list(range(group.size))
    leave_further_links(group)
    group.offer_extra_links(None)
    return len(links)


def leave_further_links(group: Group) -> None:
    for link in group.extra_links:
        link.close()
    group.extra_links = ()


def test_both_links_join_the_same_ranks_and_all_know_how_slow_the_second_is(rank_pool: RankPool) -> None:
    answers = rank_pool.run(3, joined, ["lo"] * 3)
    assert {num_links for _, num_links, _ in answers} == {2}
    (slowness,) = {slowness for _, _, slowness in answers}
    assert slowness[0] == 1
    assert 0.01 < slowness[1] < 100, "both are this machine's own"


def test_every_rank_is_told_which_of_them_has_no_such_interface(rank_pool: RankPool) -> None:
    for said, num_links, _ in rank_pool.run(3, joined, ["lo", "lo", "nosuch0"]):
        assert num_links == 1
        assert said is not None
        assert said.startswith("spec.network.secondInterface: ")
        assert "rank 2 has none (no such interface with an address); name one that every worker has" in said


def test_ranks_connect_over_their_first_interface_as_often_as_a_plan_asks(rank_pool: RankPool) -> None:
    assert rank_pool.run(3, joined_again, 4) == [4] * 3


def refused(group: Group, num_links: int) -> tuple[int, int]:
    leave_further_links(group)
    extra_links.join(group, None, b"secret", 30.0)
    opened, own = 0, Listener.open

    def open_one(*of: Any) -> Listener:
        nonlocal opened
        opened += 1
        if group.rank == 1 and opened > 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return own(*of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listener, "open", open_one)
        tried = [len(group.join_links(num_links)) for _ in range(2)]
    assert tried[0] == tried[1]
    assert [gather_numbers(link, link.rank) for link in group.join_links(num_links)] == [[0, 1, 2]] * tried[0]
    leave_further_links(group)
    return tried[0], opened


def test_where_a_rank_can_open_no_more_all_go_on_with_what_they_have(rank_pool: RankPool) -> None:
    assert rank_pool.run(3, refused, 4) == [(2, 2)] * 3


def test_without_one_there_is_one_link(rank_pool: RankPool) -> None:
    assert rank_pool.run(2, joined, [None, None]) == [(None, 1, (1.0,))] * 2
