"""What a schedule says is what happens, and whatever it says, no gradient is lost."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import toy_schedules, toy_schemes
from kit.training.exchanging_rank import (
    CUTS,
    NUM_ELEMENTS,
    PLANNED,
    SCHEDULES,
    SHAPES,
    Rank,
    assert_same,
    in_arena_order,
    spoil,
    timetable_drawn,
)
from torch import Tensor
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.papers.deft import queues
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Iteration, Timetable
from trimtab.transport.group import Group
from trimtab_api.catalogue import DENSE_COLLECTIVES, SPARSE_COLLECTIVES


def plan_drawn(draw: random.Random, schedules: tuple[str, ...] = SCHEDULES) -> Plan:
    cuts = (0, *sorted(draw.sample(range(1, NUM_ELEMENTS), draw.randrange(5))))
    fusion = FusionPlan(cuts, draw.choice(("ahead", "behind")))
    if draw.random() < 0.2:
        plan = Plan(1.0, draw.choice(DENSE_COLLECTIVES), fusion=fusion)
    else:
        sparsifier = draw.choice(("tracked", "mstopk", "toy-memory"))
        plan = Plan(draw.choice((0.01, 0.1, 0.5)), draw.choice((*SPARSE_COLLECTIVES, "toy-ledger")), sparsifier, fusion)
    schedule = draw.choice(schedules)
    return replace(plan, schedule=schedule, timetable=timetable_drawn(draw, schedule, len(cuts)))


def check_conserved(balances: list[dict[str, Tensor]]) -> None:
    """What went in, on all ranks, is what came out on each, or is held back somewhere."""
    total = {name: torch.stack([each[name] for each in balances]).sum(0) for name in balances[0]}
    found = total["handed"] + total["residual"] + total["waiting"] + total["arrived"]
    allowed = 40 * len(balances) * 2**-24 * total["magnitude"] + 1e-12
    assert ((total["entered"] - found).abs() <= allowed).all(), "conservation"
    for name in ("handed", "arrived"):
        assert all(torch.equal(each[name], balances[0][name]) for each in balances), f"{name}, by all ranks alike"


def fuzz(group: Group, seed: int, schedules: tuple[str, ...]) -> list[dict[str, Tensor]]:
    """Iterations under changing plans, some dropped, some undone; the balance after each."""
    draw = random.Random(seed)  # the same on every rank
    toy_schedules.register()
    toy_schemes.register()
    rank = Rank(group, plan_drawn(draw, schedules))
    balances = []
    step = 0
    for _ in range(40):
        event = draw.choice(("go on", "go on", "go on", "re-plan", "drop", "trial"))
        if event == "re-plan":
            rank.adopt(plan_drawn(draw, schedules).with_version(step), step)
        elif event == "trial":
            before, plan = rank.state(), rank.exchanger.plan
            kept = copy.deepcopy((rank.entered, rank.handed, rank.magnitude, rank.random.get_state()))
            residual = rank.flat_buffers.residual.clone()
            carried = copy.deepcopy(rank.exchanger.state_dict())
            rank.adopt(plan_drawn(draw, schedules), step, trial=1)
            for _ in range(draw.randrange(1, 4)):
                rank.iterate(rank.gradient())
            rank.adopt(plan, step)
            rank.exchanger.load_state_dict(carried)
            rank.flat_buffers.residual.copy_(residual)
            assert_same(before, rank.state())
            rank.entered, rank.handed, rank.magnitude = kept[:3]
            rank.random.set_state(kept[3])
            continue
        gradients = rank.gradient()
        sent = sorted(rank.exchanger.dispatcher.present)  # of what is not sent, nobody would know before it is
        spoils = event == "drop" and bool(sent)
        if spoils:
            span = rank.exchanger.buckets[draw.choice(sent)].span
            spoil(gradients, draw.randrange(span.start, span.stop), group.rank == step % group.size)
        before = rank.state()
        sends = [send.bucket for send in rank.exchanger.dispatcher._sends]
        assert rank.iterate(gradients) != spoils
        check_counted(before[0], rank.exchanger, sends, dropped=spoils)
        if spoils:
            after = rank.state()
            assert torch.equal(before[1], after[1]), "the residual is what it was"
            assert_same(before[0]["buckets"], after[0]["buckets"])
            assert_same(before[0]["schemes"], after[0]["schemes"])
        step += 1
        balances.append(rank.balance())
    rank.exchanger.close()
    return balances


def check_counted(before: dict[str, Any], exchanger: Exchanger, sends: list[int], *, dropped: bool) -> None:
    """The scheme in force has kept what this iteration's exchanges proposed, once each; a dropped one's not."""
    if exchanger.plan.collective != "toy-ledger":
        return
    expected = dict(before["schemes"]["collectives"]["toy-ledger"]["counts"])
    for number in [] if dropped else sends:
        key = exchanger.buckets.ranges[number]
        expected[key] = expected.get(key, 0) + 1
    assert exchanger.state_dict()["schemes"]["collectives"]["toy-ledger"]["counts"] == expected


CONSERVING = tuple(name for name in SCHEDULES if name != toy_schedules.EveryThird.name)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_whatever_plans_schedules_trials_and_dropped_steps_follow_each_other(
    rank_pool: RankPool, seed: int
) -> None:
    histories = rank_pool.run(3, fuzz, seed, CONSERVING)
    assert len(histories[0]) > 20
    for balances in zip(*histories, strict=True):
        check_conserved(list(balances))


def re_bucketed(group: Group) -> tuple[dict[Any, int], dict[Any, int]]:
    toy_schedules.register()
    toy_schemes.register()
    rank = Rank(group, Plan(0.1, "toy-ledger", fusion=FusionPlan((0, 100, 500))))
    rank.iterate(rank.gradient())
    rank.iterate(rank.gradient())

    def counts() -> dict[Any, int]:
        return rank.exchanger.state_dict()["schemes"]["collectives"]["toy-ledger"]["counts"]

    before = counts()
    rank.adopt(Plan(0.1, "all-gather", fusion=FusionPlan((0, 300))), 2)
    rank.exchanger.close()
    return before, counts()


def test_what_a_scheme_carries_is_brought_to_the_new_buckets_also_while_another_is_in_force(
    rank_pool: RankPool,
) -> None:
    for before, after in rank_pool.run(2, re_bucketed):
        assert before == {(0, 100): 2, (100, 500): 2, (500, NUM_ELEMENTS): 2}
        assert after == {(0, 300): 2, (300, NUM_ELEMENTS): 2}


@dataclass
class Trace:
    """What a rank saw of some iterations."""

    handed: list[Tensor]
    sent: list[list[tuple[int, int, int]]]
    means: list[Tensor]
    num_bytes: list[int]
    """That each link carried."""


def trace(group: Group, plan: Plan, iterations: int) -> Trace:
    toy_schedules.register()
    rank = Rank(group, plan)
    links = (group, *group.extra_links)
    seen = Trace([], [], [], [-link.num_bytes for link in links])
    generators = [torch.Generator().manual_seed(r) for r in range(group.size)]
    for _ in range(iterations):
        before = rank.handed.clone()
        everyones = [[torch.randn(shape, generator=g) for shape in SHAPES] for g in generators]
        seen.means.append(torch.stack([in_arena_order(each) for each in everyones]).mean(0))
        rank.backward(everyones[group.rank])
        outcome = rank.exchanger.finish()
        pending_exchanges = rank.exchanger.pending_exchanges
        seen.sent.append([(f.send.bucket, f.send.iteration, f.payload.count) for f in pending_exchanges])
        if outcome.updates:
            rank.take()
        rank.exchanger.commit()
        rank.flat_buffers.release_gradients()
        seen.handed.append(rank.handed - before)
    seen.num_bytes = [sum(each) for each in zip(seen.num_bytes, (link.num_bytes for link in links), strict=True)]
    rank.exchanger.close()
    return seen


def traced(rank_pool: RankPool, schedule: str, iterations: int, timetable: Timetable | None = None) -> Trace:
    toy_schedules.register()
    plan = replace(Plan.parse("dense", FusionPlan(CUTS)), schedule=schedule, timetable=timetable)
    first, *others = rank_pool.run(3, trace, plan, iterations)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first.handed, other.handed, strict=True))
    return first


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_bucket_that_is_delayed_is_merged_into_its_next_exchange(rank_pool: RankPool) -> None:
    seen = traced(rank_pool, "toy-every-second-later", 4)
    assert seen.sent[0] == [(0, 0, 1), (2, 0, 1)]
    assert seen.sent[1] == [(0, 1, 1), (1, 1, 2), (2, 1, 1), (3, 1, 2)]
    for t in (1, 3):
        assert_close(seen.handed[t][200:300], (seen.means[t - 1] + seen.means[t])[200:300])
        assert not seen.handed[t - 1][200:300].any(), "nothing of it before"
        assert_close(seen.handed[t][300:640], seen.means[t][300:640])


def test_generations_may_be_kept_apart_and_sent_late(rank_pool: RankPool) -> None:
    seen = traced(rank_pool, "toy-one-behind", 4)
    assert seen.sent[2] == [(1, 1, 1), (3, 1, 1), (0, 2, 1), (2, 2, 1)]
    for t in (1, 2, 3):
        assert_close(seen.handed[t][200:300], seen.means[t - 1][200:300])
        assert_close(seen.handed[t][:200], seen.means[t][:200])


def test_the_optimizer_may_get_the_average_of_several_iterations(rank_pool: RankPool) -> None:
    seen = traced(rank_pool, "toy-every-third", 6)
    for t in (2, 5):
        assert_close(seen.handed[t], sum(seen.means[t - 2 : t + 1]) / 3)
    assert not any(seen.handed[t].any() for t in (0, 1, 3, 4))
    assert seen.sent[0] == []


def test_what_arrives_early_waits_for_the_rest_of_its_generation(rank_pool: RankPool) -> None:
    seen = traced(rank_pool, "toy-queues", 6)
    assert seen.sent[2] == [(0, 1, 2), (2, 1, 2)]
    assert seen.sent[3] == [(1, 1, 2), (3, 1, 2)]
    assert not seen.handed[2].any()
    assert_close(seen.handed[3], seen.means[0] + seen.means[1])
    assert_close(seen.handed[5], seen.means[2] + seen.means[3])


def told(group: Group) -> list[int]:
    """How many exchanges each iteration's outcome tells of: the third is dropped, the fifth is under a new plan."""
    toy_schedules.register()
    plan = replace(Plan.parse("0.1/all-gather", FusionPlan(CUTS)), schedule="toy-only-last-awaited")
    rank, numbers = Rank(group, plan), []
    for iteration in range(5):
        if iteration == 4:
            rank.adopt(plan.with_version(1), step=4)
        gradients = rank.gradient()
        if iteration == 2:
            spoil(gradients, NUM_ELEMENTS - 1, group.rank == 0)
        rank.backward(gradients)
        numbers.append(len(rank.exchanger.finish().exchanged))
        if iteration == 2:
            rank.exchanger.drop()
        else:
            rank.take()
            rank.exchanger.commit()
        rank.flat_buffers.release_gradients()
    rank.exchanger.close()
    return numbers


def test_what_came_late_is_told_of_once_and_only_under_its_own_plan(rank_pool: RankPool) -> None:
    num_late = len(CUTS) - 1
    for numbers in rank_pool.run(2, told):
        assert numbers == [1, num_late + 1, num_late + 1, 1, 1]


@pytest.mark.parametrize("name", ["after-backward", "toy-last-first", "toy-only-last-awaited"])
def test_schedules_that_delay_nothing_bring_the_bits_that_wait_free_does(rank_pool: RankPool, name: str) -> None:
    wait_free, other = (traced(rank_pool, each, 3) for each in ("wait-free", name))
    assert all(torch.equal(a, b) for a, b in zip(wait_free.handed, other.handed, strict=True))


def test_deft_hands_out_the_average_of_each_whole_set_once_all_of_it_has_arrived(rank_pool: RankPool) -> None:
    times = StepTimes((0.1,) * 4, (0.2,) * 4, (0.0,) * 4, (0.5,) * 4)
    made = queues.timetable(times)
    seen = traced(rank_pool, "deft", 12, made)
    taken = 0
    for t, handed in enumerate(seen.handed):
        update = made.iteration(t).update
        if update is None:
            assert not handed.any(), "of a set that is not whole the optimizer gets nothing"
        else:
            assert update < t, "updates are delayed"
            assert_close(handed, torch.stack(seen.means[taken : update + 1]).mean(0))
            taken = update + 1
    assert taken > 8


def over_the_first_link(iteration: Iteration) -> Iteration:
    return replace(iteration, sends=tuple(replace(send, link=0) for send in iteration.sends))


@pytest.mark.parametrize("name", PLANNED)
def test_more_links_bring_the_bits_of_one_and_each_carries_its_share(rank_pool: RankPool, name: str) -> None:
    times = StepTimes((0.1,) * 4, (0.2, 0.1, 0.3, 0.1), (0.0,) * 4, (0.4, 0.9, 0.4, 0.3), link_slowness=(1.0, 1.65))
    made = PLANNED[name](times)
    first, cycle = (tuple(map(over_the_first_link, part)) for part in (made.first, made.cycle))
    one, more = (traced(rank_pool, name, 8, each) for each in (replace(made, first=first, cycle=cycle), made))
    assert all(torch.equal(a, b) for a, b in zip(one.handed, more.handed, strict=True))
    assert any(handed.any() for handed in more.handed)
    assert not any(one.num_bytes[1:])
    assert made.num_links > 1
    assert min(more.num_bytes[: made.num_links]) > 0
    payload = 8 * 4 / 3 * NUM_ELEMENTS  # 8 iterations at most, each a ring's 4 (N - 1)/N bytes an element and way
    assert sum(more.num_bytes) == sum(one.num_bytes) > payload / 2


@pytest.mark.parametrize("name", ["priority", "us-byte"])
def test_planned_orders_bring_the_bits_that_wait_free_does(rank_pool: RankPool, name: str) -> None:
    made = PLANNED[name](StepTimes((0.1,) * 4, (0.2, 0.1, 0.3, 0.1), (0.0,) * 4, (0.3, 0.5, 0.2, 0.1)))
    wait_free, other = traced(rank_pool, "wait-free", 3), traced(rank_pool, name, 3, made)
    assert all(torch.equal(a, b) for a, b in zip(wait_free.handed, other.handed, strict=True))
