"""The law of every scheme, as a check: what all ranks had is what all ranks got, and what they still hold back."""

from __future__ import annotations

import pytest
import torch
from cases import Case, Outcome

#: Where a rank that drops what others sent, on its way, keeps it in its own residual.
KEEPING_OTHERS = ("gtopk",)


def check(size: int, case: Case, outcomes: list[Outcome]) -> None:
    """Everything that is promised of one exchange."""
    accs = torch.stack([outcome.acc for outcome in outcomes]).double()
    residuals = torch.stack([outcome.residual for outcome in outcomes]).double()
    update = outcomes[0].update
    missing = accs.sum(0) - size * update.double() - residuals.sum(0)
    rounding = 4 * size * (2**-24 * accs.abs().sum(0) + 2**-149)
    assert (missing.abs() <= rounding).all(), "conservation"

    for outcome in outcomes:
        assert torch.equal(outcome.update, update), "the update has the same bits on every rank"
        exchanged = outcome.exchanged
        assert exchanged.squared_norm_before == pytest.approx(outcome.acc.double().square().sum().item(), rel=1e-5)
        assert exchanged.squared_norm_after == pytest.approx(
            outcome.residual.double().square().sum().item(), rel=1e-4, abs=1e-5 * exchanged.squared_norm_before
        )
        if exchanged.sent is not None and case.scheme not in KEEPING_OTHERS:
            kept = torch.ones(case.segments[-1], dtype=torch.bool)
            kept[exchanged.sent.long()] = False
            assert torch.equal(outcome.residual[kept], outcome.acc[kept]), "nothing else is taken from the residual"

    if case.vote_length is None:
        assert all(outcome.exchanged.vote.numel() == 0 for outcome in outcomes)
    else:
        votes = torch.stack([outcome.vote for outcome in outcomes]).double()
        for outcome in outcomes:
            assert torch.equal(outcome.exchanged.vote, outcomes[0].exchanged.vote), "the same consensus everywhere"
            torch.testing.assert_close(outcome.exchanged.vote.double(), votes.sum(0), rtol=1e-5, atol=1e-5)
