"""The law of every scheme: what all ranks had is what all ranks got, and what they still hold back.

Ranks are threads here, as this is mathematics. Sockets carry it with few ranks, and with many in `make test-all`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from cases import GRADIENTS, SIZES, WIRED, Case, Outcome, run_case
from conservation import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.rank_pool import RankPool
from kit.rank_threads import RankThreads
from trimtab import collectives
from trimtab.plan.plan import split_elements
from trimtab.sparsifiers.near_k import EXACT_UP_TO
from trimtab.transport.group import Group
from trimtab_api import catalogue
from trimtab_api.catalogue import COLLECTIVES, DENSE_COLLECTIVES, SPARSE_COLLECTIVES, sparsifiers

LENGTHS = (1, 2, 3, 7, 31, 127, 1009, 5003)
#: Where what a rank selected may be dropped before it reaches all.
SELECTING_AGAIN = ("gtopk", "ok-topk", "spardl")


@pytest.mark.parametrize("size", WIRED)
@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_every_scheme_conserves_over_sockets(rank_pool: RankPool, scheme: str, size: int) -> None:
    for step, n in enumerate(LENGTHS):
        case = Case(scheme, segments=(0, n), k=(max(1, n // 10),), seed=n, step=step, vote_length=step % 4)
        check(size, case, rank_pool.run(size, run_case, case))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_every_scheme_conserves_what_is_hard_to_select_from(rank_threads: RankThreads, gradient: str) -> None:
    for scheme, size in product(COLLECTIVES, (3, 4)):
        case = Case(scheme, segments=(0, 600), k=(60,), vote_length=1, gradient=gradient)
        check(size, case, rank_threads.run(size, run_case, case))


def on_gpu(rank: int, size: int, cases: list[Case]) -> list[Outcome]:
    group = Group.connect(deadline=30)
    try:
        return [run_case(group, case).on_cpu() for case in cases]
    finally:
        group.close()


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("sparsifier", "size"), [*product(sparsifiers.built_in, [2]), ("topk", 1), ("topk", 3), ("topk", 4), ("tracked", 4)]
)
def test_every_scheme_conserves_on_a_gpu(gpu_rank_pool: RankPool, sparsifier: str, size: int) -> None:
    cases = [
        Case(
            scheme,
            (0, n),
            (max(1, n // 10),),
            seed=n,
            step=step,
            vote_length=step % 4,
            sparsifier=sparsifier,
            device="cuda",
        )
        for scheme in (COLLECTIVES if sparsifier == "topk" else SPARSE_COLLECTIVES)
        for step, n in enumerate((1, 3, 31, 5003))
    ]
    outcomes = zip(*gpu_rank_pool.run_in_process_group(size, on_gpu, cases), strict=True)
    for case, of_ranks in zip(cases, outcomes, strict=True):
        check(size, case, list(of_ranks))


@pytest.mark.parametrize("scheme", [scheme for scheme in COLLECTIVES if scheme not in SELECTING_AGAIN])
def test_these_schemes_hold_back_nothing_of_what_they_send(rank_threads: RankThreads, scheme: str) -> None:
    for outcome in rank_threads.run(4, run_case, Case(scheme, segments=(0, 500), k=(50,))):
        sent = outcome.exchanged.sent
        if sent is None:
            assert not outcome.residual.any(), "a dense scheme flushes the residual"
        else:
            assert not outcome.residual[sent.long()].any(), "cleared where sent"
            assert outcome.exchanged.num_selected == sent.numel() == sent.unique().numel()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Of any scheme."""
    cuts = draw(st.lists(st.integers(1, 6000), min_size=1, max_size=6, unique=True).map(sorted))
    segments = (0, *cuts)
    ratio = draw(st.sampled_from((0.001, 0.01, 0.1, 0.5, 1.0)))
    return Case(
        scheme="",
        segments=segments,
        k=tuple(split_elements(ratio, segments)),
        seed=draw(st.integers(0, 10_000)),
        step=draw(st.integers(0, 30)),
        vote_length=draw(st.sampled_from((None, 0, 1, 5))),
        in_place=draw(st.booleans()),
        chunk_bytes=draw(st.sampled_from((4, 64, 1000, 1 << 19))),
        sparsifier=draw(st.sampled_from(("topk", "tracked", "wandering"))),
    )


@pytest.mark.parametrize("scheme", COLLECTIVES)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.sampled_from(SIZES), case=cases())
def test_conservation_holds_for_any_number_of_ranks_segments_ratio_and_selection(
    rank_threads: RankThreads, scheme: str, size: int, case: Case
) -> None:
    case = replace(case, scheme=scheme)
    check(size, case, rank_threads.run(size, run_case, case))


@pytest.mark.parametrize("scheme", SPARSE_COLLECTIVES)
def test_buffers_too_long_to_be_sorted_conserve_as_well(rank_threads: RankThreads, scheme: str) -> None:
    segments = (0, 1000, EXACT_UP_TO + 9000)
    for step, ratio in enumerate((0.001, 0.03, 0.3)):
        k = tuple(split_elements(ratio, segments))
        case = Case(scheme, segments, k, seed=step, step=step, vote_length=1, sparsifier="tracked")
        check(4, case, rank_threads.run(4, run_case, case))


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_more_than_there_is_can_be_asked_for(rank_threads: RankThreads, scheme: str) -> None:
    case = Case(scheme, segments=(0, 2, 3), k=(5, 5), vote_length=1)
    outcomes = rank_threads.run(3, run_case, case)
    check(3, case, outcomes)
    mean = torch.stack([outcome.acc for outcome in outcomes]).mean(0)
    torch.testing.assert_close(outcomes[0].update, mean)


def test_under_star_the_leader_takes_turns_and_its_selection_is_everyones(rank_threads: RankThreads) -> None:
    for step in range(6):
        case = Case("artopk-star-ring", segments=(0, 500), k=(20,), step=step)
        outcomes = rank_threads.run(4, run_case, case)
        chosen = outcomes[step % 4].acc.abs().topk(20).indices.sort().values
        for outcome in outcomes:
            assert torch.equal(outcome.exchanged.sent.long(), chosen)


def test_under_var_the_leader_is_the_rank_whose_selection_weighs_most(rank_threads: RankThreads) -> None:
    for seed in range(6):
        outcomes = rank_threads.run(
            5, run_case, Case("artopk-var-tree:by=selection", segments=(0, 300), k=(30,), seed=seed)
        )
        weights = [outcome.acc.abs().topk(30).values.square().sum() for outcome in outcomes]
        chosen = outcomes[weights.index(max(weights))].acc.abs().topk(30).indices.sort().values
        for outcome in outcomes:
            assert torch.equal(outcome.exchanged.sent.long(), chosen)


@pytest.mark.parametrize("size", [2, 4, 6, 8])
@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_every_scheme_costs_its_closed_form_or_less(rank_threads: RankThreads, scheme: str, size: int) -> None:
    check_cost(rank_threads, scheme, size)


@pytest.mark.parametrize("scheme", COLLECTIVES)
def test_sockets_count_what_every_scheme_costs(rank_pool: RankPool, scheme: str) -> None:
    check_cost(rank_pool, scheme, 4)


def check_cost(ranks: RankPool | RankThreads, scheme: str, size: int) -> None:
    n, k = 40_000, 400
    case = Case(scheme, segments=(0, n), k=(n if scheme in DENSE_COLLECTIVES else k,), vote_length=0)
    outcomes = ranks.run(size, run_case, case)
    cost = catalogue.collective_cost(scheme, 4 * n, case.k[0] / n, size)
    most = catalogue.cost_range(scheme, 4 * n, case.k[0] / n, size).most.bytes
    for outcome in outcomes:
        assert outcome.exchanged.num_messages == cost.messages
        # Beside the closed form's bytes: lengths and counts, at most 16 a message.
        assert 0 < outcome.exchanged.num_bytes <= most + 16 * outcome.messages_sent
    if scheme == "all-gather":
        coded = 4 * k + 1.2 * k + 28  # a value, a gap, and what says how many
        assert all(outcome.exchanged.num_bytes <= (size - 1) * coded for outcome in outcomes)


@pytest.mark.parametrize("scheme", DENSE_COLLECTIVES)
def test_dense_schemes_give_the_mean(rank_threads: RankThreads, scheme: str) -> None:
    outcomes = rank_threads.run(6, run_case, Case(scheme, segments=(0, 4001), k=(4001,)))
    mean = torch.stack([outcome.acc for outcome in outcomes]).double().mean(0)
    torch.testing.assert_close(outcomes[0].update.double(), mean, rtol=1e-5, atol=1e-6)


def test_every_collective_of_a_plan_can_be_made() -> None:
    assert set(collectives.names()) == set(COLLECTIVES)
