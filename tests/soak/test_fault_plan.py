"""A seed gives the same faults again, every kind comes soon, and the minutes are filled."""

from __future__ import annotations

from soak.fault_plan import FAMILIES, HARMLESS, NUM_RANKS, RESTARTING, Kind, draw_family, plan_faults


def test_one_seed_gives_the_same_faults_and_another_seed_gives_others() -> None:
    assert plan_faults(7, 3.0) == plan_faults(7, 3.0)
    assert plan_faults(7, 3.0) != plan_faults(8, 3.0)


def test_more_minutes_continue_the_same_faults() -> None:
    short, long = plan_faults(7, 2.0), plan_faults(7, 20.0)
    assert long[: len(short)] == short
    assert len(long) > 5 * len(short)


def test_every_kind_comes_within_ten_minutes() -> None:
    for seed in range(20):
        assert {fault.kind for fault in plan_faults(seed, 10.0)} == set(Kind)


def test_a_fault_has_a_target_and_another_host() -> None:
    for fault in plan_faults(3, 30.0):
        assert fault.target != fault.other
        assert {fault.target, fault.other} <= set(range(NUM_RANKS))
        assert fault.gap > 0


def test_no_kind_both_restarts_and_harms_nothing() -> None:
    assert not RESTARTING & HARMLESS


def test_seeds_in_a_row_train_by_all_families() -> None:
    assert {draw_family(seed) for seed in range(len(FAMILIES))} == set(FAMILIES)
