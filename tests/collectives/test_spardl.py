"""SparDL: its law in teams, its bytes, against a plain simulation of it, and what it carries from step to step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue

import pytest
import torch
from cases import SIZES, Case, Outcome, run_case
from conservation import check
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.in_process import InProcess, Ranks
from torch import Tensor
from trimtab.collectives import create
from trimtab.papers.spardl.all_gather import SagShare, of_largest_overlap
from trimtab.papers.spardl.residual_log import ResidualLog
from trimtab.plan.plan import Plan
from trimtab.transport.group import Group
from trimtab.wire.pairs import Pairs, added, strongest
from trimtab_api.catalogue import costs
from trimtab_api.errors import UserError

IN_TEAMS = [(size, d) for size in SIZES for d in range(2, size + 1) if size % d == 0]


@cache
def groups(size: int) -> list[Group]:
    queues = {(a, b): SimpleQueue() for a in range(size) for b in range(size)}
    return [Group(InProcess(rank, size, queues)) for rank in range(size)]


def exchange(size: int, case: Case) -> list[Outcome]:
    """The case on ranks that are threads."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run_case, groups(size), [case] * size))


@pytest.mark.parametrize(("size", "teams"), IN_TEAMS)
def test_teams_conserve(size: int, teams: int) -> None:
    for step, (n, k, sparsifier) in enumerate(
        [(1, 1, "topk"), (7, 3, "topk"), (127, 12, "wandering"), (1009, 100, "topk"), (1009, 1009, "topk")]
    ):
        case = Case(f"spardl:teams={teams}", (0, n), (k,), n, step, vote_length=step % 3, sparsifier=sparsifier)
        check(size, case, exchange(size, case))


def simulated(accs: Tensor, k: int, teams: int) -> Tensor:
    """The mean by the paper's words, on dense vectors: accs [N, n], of which n and k divide by the ranks of a team."""
    size, n = accs.shape
    per_team = size // teams
    most = k // per_team

    def largest(vector: Tensor) -> Tensor:
        kept = torch.zeros_like(vector)
        indices = vector.abs().topk(most).indices
        kept[indices] = vector[indices]
        return kept

    held = accs.clone().view(teams, per_team, per_team, n // per_team)  # team, rank, block, element
    for distance in (4, 2, 1):
        if distance >= per_team:
            continue
        sent = {
            (team, rank, block % per_team): largest(held[team, rank, block % per_team])
            for team in range(teams)
            for rank in range(per_team)
            for block in range(rank + distance, rank + min(2 * distance, per_team))
        }
        for (team, rank, block), values in sent.items():
            held[team, (rank + distance) % per_team, block] += values
    blocks = []
    for rank in range(per_team):
        sums = [largest(held[team, rank, rank]) for team in range(teams)]
        while len(sums) > 1:
            sums = [largest(one + other) for one, other in zip(sums[::2], sums[1::2], strict=True)]
        blocks.append(sums[0])
    return torch.cat(blocks) / size


@pytest.mark.parametrize(("size", "teams"), [(1, 1), (2, 1), (3, 1), (5, 1), (6, 1), (6, 2), (8, 1), (8, 2), (8, 4)])
def test_the_mean_is_that_of_the_papers_words(size: int, teams: int) -> None:
    n, k = 120 * size, 12 * size
    outcomes = exchange(size, Case(f"spardl:teams={teams}", (0, n), (k,), seed=size))
    expected = simulated(torch.stack([outcome.acc for outcome in outcomes]), k, teams)
    torch.testing.assert_close(outcomes[0].update, expected)


@pytest.mark.parametrize(("size", "teams"), [(4, 1), (6, 1), (8, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4)])
@pytest.mark.parametrize("gradient", ["independent", "apart"])
def test_bytes_and_messages_are_the_closed_forms_or_less(size: int, teams: int, gradient: str) -> None:
    """Those of selections that have nothing in common as well: nothing builds up."""
    n, k = 48_000, 480
    ranks = Ranks(Plan.parse(f"{k / n}/spardl:teams={teams}/sparsifier=topk"), size, n)
    grads = torch.randn(size, n, generator=torch.Generator().manual_seed(1))
    if gradient == "apart":
        for rank in range(size):
            grads[rank, rank::size] *= 1000
    for _ in range(5 if teams == 3 else 1):
        _, exchanged = ranks.exchange(list(grads))
        forms = [costs.spardl_b_sag(4 * n, k / n, size, teams).most]
        if teams != 3:
            forms.append(costs.spardl_r_sag(4 * n, k / n, size, teams))
        if teams == 1:
            forms.append(costs.spardl(4 * n, k / n, size))
        for each in exchanged:
            assert {each.num_messages} == {form.messages for form in forms}
            # The closed form counts 8 bytes a pair; beside it, what says how many stand in a message or in a block.
            assert 0 < each.num_bytes <= min(form.bytes for form in forms) + 16 * size
    ranks.close()


@pytest.mark.parametrize("rule", ["local", "partial"])
def test_the_published_ablations_lose_what_they_say(rule: str) -> None:
    outcomes = exchange(6, Case(f"spardl:residual={rule}", (0, 1200), (120,)))
    update = outcomes[0].update
    for outcome in outcomes:
        sent = outcome.exchanged.sent.long()
        assert not outcome.residual[sent].any()
        kept = torch.ones(1200, dtype=torch.bool)
        kept[sent] = False
        assert torch.equal(outcome.residual[kept], outcome.acc[kept])
        if rule == "partial":
            assert update[sent].all(), "only what is in the mean is cleared"
            assert len(sent) < 120, "and of it only what this rank selected"
        else:
            assert len(sent) == outcome.exchanged.num_selected == 120
            assert not update[sent].all(), "what others dropped is lost"
    lost = sum(outcome.acc - outcome.residual for outcome in outcomes) - 6 * update
    assert lost.abs().max() > 0.1
    assert torch.equal(update, exchange(6, Case("spardl", (0, 1200), (120,)))[0].update)


def test_teams_divide_the_ranks() -> None:
    with pytest.raises(UserError, match="teams are of equal size, and 4 of them are not; use one of 1, 2, 3, 6"):
        create("spardl:teams=4", groups(6)[0])
    with pytest.raises(UserError, match="choose from global, local, partial"):
        create("spardl:residual=lost", groups(6)[0])


def test_h_follows_how_alike_the_teams_select_and_a_dropped_step_leaves_it() -> None:
    n, k = 9000, 300
    ranks = Ranks(Plan.parse(f"{k / n}/spardl:teams=3/sparsifier=topk"), 3, n)
    random = torch.Generator().manual_seed(1)

    def shares() -> list[float]:
        return [scheme.state_dict()["shares"][0][2] for scheme in ranks.schemes]

    for _ in range(40):  # all teams alike: h goes to L
        ranks.exchange([torch.randn(n, generator=torch.Generator().manual_seed(2))] * 3)
    assert shares() == [1.0] * 3
    before = ranks.state_dict()
    ranks.exchange(list(torch.randn(3, n, generator=random)), commits=False)
    after = ranks.state_dict()
    assert before["schemes"] == after["schemes"]

    for _ in range(60):  # nothing in common
        ranks.exchange(list(torch.randn(3, n, generator=random)))
    assert all(1 / 3 <= share < 0.6 for share in shares())
    ranks.close()


def test_what_is_carried_is_saved_and_goes_on_as_if_it_had_not_stopped() -> None:
    plan, n = Plan.parse("0.05/spardl:teams=3/sparsifier=topk"), 2000
    grads = torch.randn(12, 6, n, generator=torch.Generator().manual_seed(3))
    ranks, others = Ranks(plan, 6, n), Ranks(plan, 6, n)
    for step in range(6):
        ranks.exchange(list(grads[step]))
    others.load_state_dict(ranks.state_dict())
    for step in range(6, 12):
        one, other = ranks.exchange(list(grads[step]))[0], others.exchange(list(grads[step]))[0]
        assert torch.equal(one, other)
    assert others.state_dict()["schemes"] == ranks.state_dict()["schemes"]
    scheme = ranks.schemes[0]
    held = scheme.state_dict()["shares"][0][2:]
    scheme.rebucket([(0, n)], [(0, 500), (500, n)])
    assert scheme.state_dict()["shares"] == [[0, 500, *held], [500, n, *held]]
    ranks.close()
    others.close()


def test_a_new_buffer_goes_on_from_the_one_that_most_of_it_was_in() -> None:
    one, other = SagShare(0.4, 0.1), SagShare(0.6, -0.1)
    held = {(0, 100): one, (100, 300): other}
    assert of_largest_overlap(held, [(0, 150), (150, 300), (300, 400)]) == {(0, 150): one, (150, 300): other}
    assert of_largest_overlap({}, [(0, 10)]) == {}


def test_h_steps_as_algorithm_2_says() -> None:
    """d = 3 and L = 1000: short, the step doubles on every second agreement; past L it turns and halves."""
    share = SagShare.of_teams(3)
    assert share.elements(1000) == 333
    assert share.step * 1000 == pytest.approx(0.01 * 2 / 3 * 1000)
    steps = []
    for num_merged in (900, 900, 900, 900, 1100, 1100, 900):
        share = share.after(num_merged, 1000, 3)
        steps.append(share.step * 1000)
    first = 20 / 3
    assert steps == pytest.approx([first, 2 * first, 2 * first, 4 * first, -2 * first, -2 * first, first])
    assert share.share * 1000 == pytest.approx(1000 / 3 + sum(steps))


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(2, 9), st.integers(1, 3000))
def test_h_stays_in_its_range_and_keeps_moving(past: list[bool], d: int, most: int) -> None:
    share = SagShare.of_teams(d)
    for each in past:
        share = share.after(most + 1 if each else most, most, d)
        assert 1 / d <= share.share <= 1
        assert 1 <= share.elements(most) <= most
        assert abs(share.step) >= min(1 / most, (d - 1) / d)


def test_pairs_add_up_in_order_and_the_first_of_equals_are_kept() -> None:
    def pairs(*each: tuple[int, float]) -> Pairs:
        indices, values = zip(*each, strict=True)
        return Pairs(torch.tensor(indices, dtype=torch.int32), torch.tensor(values))

    total = added([pairs((1, 1e8), (4, 2.0)), pairs((1, 1.0), (3, -2.0)), pairs((1, -1e8), (9, 2.0))])
    assert total.indices.tolist() == [1, 3, 4, 9]
    assert total.values.tolist() == [0.0, -2.0, 2.0, 2.0]  # 1 is lost in 1e8
    kept, dropped = strongest(total, 2)
    assert (kept.indices.tolist(), dropped.indices.tolist()) == ([3, 4], [1, 9])


def test_a_log_gives_back_the_bits_that_were_there_but_for_what_is_kept() -> None:
    acc = torch.randn(50)
    was = acc.clone()
    log = ResidualLog(acc)
    some = torch.tensor([3, 7, 20], dtype=torch.int32)
    log.add(Pairs(some, torch.tensor([1e-9, 1e9, 3.0])))
    log.note_taken(Pairs(some, acc[some.long()].clone()))
    acc[some.long()] = 0
    log.add(Pairs(some[:2], torch.tensor([0.5, 0.25])))
    removed = log.settle(torch.tensor([7, 11], dtype=torch.int32))
    was_at_7, was[7] = was[7].item(), 0.25
    assert torch.equal(acc, was)
    assert removed == pytest.approx(was_at_7**2 - 0.0625, rel=1e-6)
