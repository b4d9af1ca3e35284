"""Ranks that share no secret get one that nobody learns from what they tell each other."""

from __future__ import annotations

import pytest
import torch
from kit.rank_pool import RankPool
from trimtab.transport.base import CommunicationError
from trimtab.transport.rendezvous.agreed_secret import KeyPair, agree_in_process_group, draw_secret


def test_only_the_rank_that_it_is_for_opens_a_sealed_secret() -> None:
    first, second, stranger = KeyPair(), KeyPair(), KeyPair()
    secret = draw_secret()
    sealed = first.seal(secret, second.public, 1)
    assert secret not in sealed
    assert second.unseal(sealed, first.public) == secret
    with pytest.raises(CommunicationError, match="not for this rank"):
        stranger.unseal(sealed, first.public)
    with pytest.raises(CommunicationError, match="not for this rank"):
        second.unseal(sealed, stranger.public)


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(32), bytes(33)])
def test_what_is_no_public_key_is_refused_with_the_rank_that_sent_it(public: bytes) -> None:
    with pytest.raises(CommunicationError, match="rank 7: sent no public key"):
        KeyPair().seal(draw_secret(), public, 7)


def agreeing(rank: int, size: int) -> bytes:
    return agree_in_process_group(None, torch.device("cpu"))


def test_all_ranks_of_a_process_group_agree(rank_pool: RankPool) -> None:
    first, second = (rank_pool.run_in_process_group(3, agreeing) for _ in range(2))
    assert len(set(first)) == 1
    assert len(first[0]) == 32
    assert first[0] != second[0]
