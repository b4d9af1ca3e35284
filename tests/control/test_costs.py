"""The closed forms against the measured tables of Flexible Communication, and against one another."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import PARAMETERS, TABLE_II, TABLE_VI
from trimtab_api import catalogue
from trimtab_api.catalogue import costs

GIGABIT = 1e9 / 8


@pytest.mark.parametrize(("model", "gigabits", "ratio", "ag", "ring", "tree"), TABLE_VI)
def test_table_6_has_the_same_winner(model, gigabits, ratio, ag, ring, tree):
    M, beta = 4 * PARAMETERS[model], 1 / (gigabits * GIGABIT)
    predicted = {
        name: catalogue.collective_cost(name, M, ratio, 8).seconds(1e-3, beta)
        for name in ("all-gather", "artopk-star-ring", "artopk-star-tree")
    }
    measured = {"all-gather": ag, "artopk-star-ring": ring, "artopk-star-tree": tree}
    assert min(predicted, key=predicted.get) == min(measured, key=measured.get)


def test_table_6_is_predicted_within_a_few_percent():
    """The median relative error over the 36 rows, a column each."""
    for column, name in ((3, "all-gather"), (4, "artopk-star-ring"), (5, "artopk-star-tree")):
        errors = sorted(
            abs(
                catalogue.collective_cost(name, 4 * PARAMETERS[row[0]], row[2], 8).seconds(1e-3, 1 / (row[1] * GIGABIT))
                / (row[column] * 1e-3)
                - 1
            )
            for row in TABLE_VI
        )
        assert errors[len(errors) // 2] < 0.04, name


@pytest.mark.parametrize(("parameters", "milliseconds", "gigabits", "measured"), TABLE_II)
def test_table_2_ring_within_three_percent(parameters, milliseconds, gigabits, measured):
    predicted = costs.ring_all_reduce(4 * parameters, 8).seconds(milliseconds * 1e-3, 1 / (gigabits * GIGABIT))
    assert predicted == pytest.approx(measured * 1e-3, rel=0.03)


networks = {
    "alpha": st.floats(1e-5, 0.1),
    "beta": st.floats(1e-10, 1e-5),
    "M": st.floats(1e3, 1e9),
    "c": st.floats(1e-3, 1.0),
    "N": st.sampled_from([2, 4, 8, 16, 64]),
}


def ring_beats_tree(alpha: float, beta: float, M: float, c: float, N: int) -> bool:
    """(5a): AR-Topk over a ring is faster than over a tree. At N = 2 both send as often, the ring less."""
    L = log2(N)
    if N == 2:
        return M * c * beta > 0
    return alpha / beta < M * c * (L - (N - 1) / N) / (N - 1 - L)


def ring_beats_all_gather(alpha: float, beta: float, M: float, c: float, N: int) -> bool:
    """(5b): AR-Topk over a ring is faster than AG."""
    return alpha / beta < M * c * (1 - 1 / N - log2(N) / (2 * (N - 1)))


def tree_beats_all_gather(alpha: float, beta: float, M: float, c: float, N: int) -> bool:
    """(5c): AR-Topk over a tree is faster than AG; never for N <= 4."""
    return alpha / beta < M * c * ((N - 1) / log2(N) - 3 / 2)


@given(**networks)
def test_the_inequalities_say_what_the_costs_say(alpha, beta, M, c, N):
    ag, ring, tree = (
        scheme(M, c, N).seconds(alpha, beta)
        for scheme in (costs.sparse_all_gather, costs.artopk_ring, costs.artopk_tree)
    )

    def agrees(inequality, faster, slower):
        nearly_equal = abs(faster - slower) < 1e-9 * slower
        return nearly_equal or inequality(alpha, beta, M, c, N) == (faster < slower)

    assert agrees(ring_beats_tree, ring, tree)
    assert agrees(ring_beats_all_gather, ring, ag)
    assert agrees(tree_beats_all_gather, tree, ag)


@given(alpha=networks["alpha"], beta=networks["beta"], M=networks["M"], c=networks["c"])
def test_a_tree_never_beats_all_gather_up_to_four_ranks(alpha, beta, M, c):
    for N in (2, 4):
        assert not tree_beats_all_gather(alpha, beta, M, c, N)
    assert not ring_beats_all_gather(alpha, beta, M, c, 2)


@given(M=networks["M"], c=networks["c"], N=st.sampled_from([4, 8, 16, 64]))
def test_spardl_in_one_team_is_plain_spardl(M, c, N):
    plain = costs.spardl(M, c, N)
    one_team = costs.spardl_r_sag(M, c, N, 1)
    assert (one_team.messages, one_team.bytes) == pytest.approx((plain.messages, plain.bytes))
    assert costs.spardl_b_sag(M, c, N, 1).most.bytes <= plain.bytes * (1 + 1e-12)


@given(M=networks["M"], c=networks["c"], N=st.sampled_from([4, 8, 16, 64]))
def test_a_range_has_its_ends_in_order_while_the_gradient_is_sparse(M, c, N):
    for bounds in (costs.ok_topk_range(M, c, N), costs.topk_dsa_range(M, c, N), costs.spardl_b_sag(M, c, N, 2)):
        assert bounds.least.bytes <= bounds.most.bytes * (1 + 1e-12)


def test_var_adds_one_float_gathered():
    star, var = (catalogue.collective_cost(f"artopk-{kind}-ring", 1e8, 0.01, 8) for kind in ("star", "var"))
    assert var.messages - star.messages == 3
    assert var.bytes - star.bytes == 7 * 4


def test_one_rank_costs_nothing_and_odd_worlds_round_up():
    assert catalogue.collective_cost("all-gather", 1e8, 0.1, 1) == costs.Cost(0, 0)
    assert costs.broadcast(1.0, 5).messages == 3


def test_schemes_for_powers_of_two_say_so():
    with pytest.raises(ValueError, match="powers of two"):
        costs.spardl_r_sag(1e8, 0.01, 6, 3)
    with pytest.raises(ValueError, match="does not divide"):
        costs.spardl_r_sag(1e8, 0.01, 6, 4)


@given(M=networks["M"], c=networks["c"], N=st.sampled_from([2, 4, 8, 16, 64]))
def test_schemes_that_sum_on_the_way_cost_what_spardls_table_says_or_less(M, c, N):
    """TopkDSA, gTopk and Ok-Topk: SparDL, Table I, with direct messages that leave one after another."""
    L, share = costs.rounds(N), (N - 1) / N
    assert costs.gtopk(M, c, N) == costs.Cost(2 * L, 4 * L * M * c)
    for ours, messages, least, most in (
        (costs.topk_dsa_range(M, c, N), N + 2 * L, 4 * share * M * c, share * (2 * M * c + M)),
        (costs.ok_topk_range(M, c, N), 2 * (N + L), 2 * share * M * c, 6 * share * M * c),
    ):
        assert ours.most.messages <= messages
        assert ours.least.bytes == pytest.approx(min(least, most))
        assert ours.most.bytes == pytest.approx(most)


def test_a_cost_that_depends_on_what_is_selected_lies_between_its_ends():
    for row in catalogue.collectives.rows():
        for N, c in ((2, 0.01), (6, 0.001), (8, 0.1), (64, 0.3)):
            if row.cost_range is not None:
                cost = catalogue.collective_cost(row.name, 1e8, c, N)
                ends = catalogue.cost_range(row.name, 1e8, c, N)
                assert ends.least.bytes * (1 - 1e-9) <= cost.bytes <= ends.most.bytes
                assert ends.least.messages <= cost.messages <= ends.most.messages
