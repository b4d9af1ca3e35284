"""Profiled steps: what each part took, by a clock that the model moves on, and how ranks' gradients differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.rank_pool import RankPool
from kit.training import slow_exchanges, toy_schedules
from kit.training.engines import engine_of
from kit.training.regression import loss_of
from kit.training.scripted_control import Script
from torch import Tensor, nn
from trimtab.engine.profiling import profiler
from trimtab.engine.profiling.profiler import NUM_SETTLING, NUM_STEPS, STEPS_BETWEEN_DELAYED
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import Profile
from trimtab.plan.timetable import Iteration, Send, Timetable
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group

SIZE = 2
TWO_BUCKETS = FusionPlan((0, 20))
DENSE = Plan.parse("dense", TWO_BUCKETS)
SPARSE = Plan.parse("0.1/all-gather", TWO_BUCKETS)
#: Steps after which a profile is there.
NUM_UNTIL_PROFILED = NUM_SETTLING + NUM_STEPS


class Clock:
    """Tells the time that has been spent."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


class Spend(torch.autograd.Function):
    """Passes on its input and spends time, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: Clock, forward: float, backward: float) -> Tensor:
        ctx.clock, ctx.backward_seconds = clock, backward
        clock.spend(forward)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.clock.spend(ctx.backward_seconds)
        return grads[0], None, None, None


class Timed(nn.Linear):
    """Takes so long, forward and backward."""

    def __init__(self, num_in: int, num_out: int, clock: Clock, forward: float, backward: float) -> None:
        super().__init__(num_in, num_out)
        self.times = clock, forward, backward

    def forward(self, x: Tensor) -> Tensor:
        return Spend.apply(super().forward(x), *self.times)  # type: ignore[no-any-return]


def model_of(clock: Clock) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Timed(4, 16, clock, 0.25, 0.5), nn.Tanh(), Timed(16, 1, clock, 1.0, 2.0))


class Profiled(Script):
    """A controller that keeps the profiles that it is told of."""

    can_run_trials = False

    def __init__(self, profiles: list[Profile]) -> None:
        super().__init__({})
        self.profile = profiles.append


class Training:
    """A session whose profiles are kept, on a clock of its own."""

    def __init__(self, rank: int, plan: Plan, build: Callable[[Clock], nn.Module] = model_of) -> None:
        self.rank, self.number = rank, 0
        self.clock = Clock()
        profiler.time = self.clock  # type: ignore[assignment]  # in a process of the rank's own, which others use too
        self.model = build(self.clock)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.profiles: list[Profile] = []
        client = Profiled(self.profiles) if rank == 0 else None
        self.session = Session(
            self.model, self.optimizer, group=Group.connect(), plan=plan, recorder=Recorder(None), control_client=client
        )
        self.session.when_closed.callback(setattr, profiler, "time", time)

    def step(self, num_passes: int = 1) -> None:
        self.clock.spend(0.125)
        with self.session.no_sync():
            for _ in range(num_passes - 1):
                loss_of(self.model, self.number, self.rank).backward()
        loss = loss_of(self.model, self.number, self.rank)
        loss.backward()
        self.number += 1
        self.session.step(loss)

    def steps(self, count: int, **options: Any) -> Training:
        for _ in range(count):
            self.step(**options)
        return self

    def adopt(self, plan: Plan) -> None:
        engine_of(self.session).plans.adopt(plan, self.number)

    def ended(self) -> list[Profile]:
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in self.model.modules())
        self.session.close()
        return self.profiles


def profiled(rank: int, size: int, plan: Plan, num_passes: int = 1) -> list[Profile]:
    return Training(rank, plan).steps(NUM_UNTIL_PROFILED, num_passes=num_passes).ended()


def test_each_part_is_told_what_it_took(rank_pool: RankPool) -> None:
    [profile], others = rank_pool.run_in_process_group(SIZE, profiled, DENSE)
    assert others == []
    assert (profile.step, profile.num_steps, profile.plan) == (NUM_UNTIL_PROFILED - 1, NUM_STEPS, DENSE)
    assert profile.lead_seconds == pytest.approx(0.125 + 0.25 + 1.0)
    assert profile.backward_seconds == pytest.approx(2.5)
    assert sum(profile.tensor_backward_seconds[:2]) == pytest.approx(2.0)
    assert [(each.name, each.start, each.stop) for each in profile.modules] == [("0", 17, 97), ("2", 0, 17)]
    assert [(each.forward_seconds, each.backward_seconds) for each in profile.modules] == [(0.25, 0.5), (1.0, 2.0)]
    assert len(profile.buckets) == 2
    assert all(bucket.wire_seconds > 0 for bucket in profile.buckets)


def profiled_with_late_means(rank: int, size: int) -> list[Profile]:
    toy_schedules.register()
    training = Training(rank, replace(DENSE, schedule="toy-last-first"))
    with slow_exchanges.each_takes(lambda: training.clock.spend(1000.0)):
        training.steps(NUM_UNTIL_PROFILED)
        training.session.close()
    return training.profiles


def test_waiting_for_late_means_is_no_part_of_a_forward_pass(rank_pool: RankPool) -> None:
    [profile], _ = rank_pool.run_in_process_group(SIZE, profiled_with_late_means)
    assert [each.forward_seconds for each in profile.modules] == pytest.approx([0.25, 1.0])
    assert profile.lead_seconds == pytest.approx(0.125 + 0.25 + 1.0)
    assert profile.backward_seconds == pytest.approx(2.5)


def test_passes_that_only_accumulate_lead_up_to_the_one_that_is_sent(rank_pool: RankPool) -> None:
    [profile], _ = rank_pool.run_in_process_group(SIZE, profiled, DENSE, 3)
    assert profile.backward_seconds == pytest.approx(2.5)
    assert profile.lead_seconds == pytest.approx(0.125 + 3 * 1.25 + 2 * 2.5)


def norms_by_hand(rank: int, size: int) -> tuple[list[Profile], list[tuple[float, float]]]:
    """The profile of dense steps; and of each step the squared norm of the mean gradient, and the variance."""
    training = Training(rank, DENSE)
    by_hand = []
    for number in range(NUM_UNTIL_PROFILED):
        gradients = []
        for other in range(size):
            loss = loss_of(training.model, number, other)
            parts = torch.autograd.grad(loss, list(training.model.parameters()))
            gradients.append(torch.cat([part.flatten() for part in parts]))
        mean = torch.stack(gradients).mean(0)
        by_hand.append((float(mean.square().sum()), sum(float((g - mean).square().sum()) for g in gradients) / size))
        training.step()
    return training.ended(), by_hand


def test_norm_and_variance_are_those_of_the_ranks_gradients(rank_pool: RankPool) -> None:
    ([profile], by_hand), _ = rank_pool.run_in_process_group(SIZE, norms_by_hand)
    steps = by_hand[NUM_SETTLING : NUM_SETTLING + NUM_STEPS - 1]  # those whose next step is of the profile too
    assert profile.squared_gradient_norm == pytest.approx(sum(norm for norm, _ in steps) / len(steps), rel=1e-4)
    assert profile.gradient_variance == pytest.approx(sum(variance for _, variance in steps) / len(steps), rel=1e-4)


def two_plans(rank: int, size: int, first: Plan, second: Plan) -> list[Profile]:
    training = Training(rank, first).steps(NUM_UNTIL_PROFILED)
    training.adopt(second)
    return training.steps(NUM_UNTIL_PROFILED).ended()


def test_compressed_steps_tell_no_norm_and_the_last_one_known_stands(rank_pool: RankPool) -> None:
    (unknown, known), _ = rank_pool.run_in_process_group(SIZE, two_plans, SPARSE, DENSE)
    assert (unknown.squared_gradient_norm, unknown.gradient_variance) == (None, None)
    assert known.squared_gradient_norm is not None
    (known, later), _ = rank_pool.run_in_process_group(SIZE, two_plans, DENSE, SPARSE)
    assert later.gradient_variance == known.gradient_variance is not None
    assert all(bucket.compress_seconds > 0 for bucket in later.buckets)


def merged_by_twos(rank: int, size: int, averages: bool) -> tuple[list[Profile], list[float]]:
    """Profiles under updates of two iterations, which move no weight, and the squared norms of their means."""
    everything = tuple(Send(bucket, 0) for bucket in range(2))
    timetable = Timetable((), (Iteration((), None), Iteration(everything, 0)), averages=averages)
    training = Training(rank, DENSE)
    training.optimizer.param_groups[0]["lr"] = 0.0
    training.steps(NUM_UNTIL_PROFILED)
    training.adopt(replace(DENSE, schedule="deft", timetable=timetable))
    training.steps(NUM_SETTLING + NUM_STEPS + STEPS_BETWEEN_DELAYED)

    def flat_gradient(number: int) -> Tensor:
        losses = [loss_of(training.model, number, other) for other in range(size)]
        return torch.cat(
            [each.flatten() for each in torch.autograd.grad(sum(losses) / size, training.model.parameters())]
        )

    norms = [((flat_gradient(n) + flat_gradient(n + 1)) / 2).square().sum().item() for n in range(8, 8 + 32, 2)]
    return training.ended(), norms


@pytest.mark.parametrize("averages", [True, False])
def test_merged_updates_tell_the_norm_of_their_iterations_mean_and_how_the_loss_falls(
    rank_pool: RankPool, averages: bool
) -> None:
    (([first, second, third], norms), _) = rank_pool.run_in_process_group(SIZE, merged_by_twos, averages)
    assert third.step - second.step == STEPS_BETWEEN_DELAYED
    assert second.squared_gradient_norm == pytest.approx(sum(norms[1:4]) / 3, rel=1e-4)
    assert second.gradient_variance == first.gradient_variance is not None
    assert (first.loss_fall, second.loss_fall) == (None, None), "too soon to tell"
    assert third.loss_fall is not None


def diverging(rank: int, size: int, is_deferred: bool) -> list[Profile]:
    """Profiles of training that moves no weight for thirty steps, and then far too much."""
    one_late = tuple(Send(bucket, 1) for bucket in range(2))
    timetable = Timetable((Iteration((), None),), (Iteration(one_late, 1),), averages=True)
    training = Training(rank, DENSE)
    [group] = training.optimizer.param_groups
    group["lr"] = 0.0
    training.steps(30)
    if is_deferred:
        training.adopt(replace(DENSE, schedule="deft", timetable=timetable))
    group["lr"] = 5.0
    return training.steps(NUM_SETTLING + NUM_STEPS + STEPS_BETWEEN_DELAYED).ended()


@pytest.mark.parametrize("is_deferred", [True, False])
def test_the_last_profile_says_at_once_that_late_updates_do_harm(rank_pool: RankPool, is_deferred: bool) -> None:
    profiles, others = rank_pool.run_in_process_group(SIZE, diverging, is_deferred)
    assert others == []
    assert [each.delay_harmed_at for each in profiles] == ([None, 5.0, None, None] if is_deferred else [None])
    if is_deferred:
        first, told, *_ = profiles
        assert 30 < told.step < 30 + NUM_SETTLING + NUM_STEPS - 1, "before another is made"
        assert told.tensor_backward_seconds == first.tensor_backward_seconds


def changed_meanwhile(rank: int, size: int) -> list[Profile]:
    training = Training(rank, DENSE).steps(NUM_UNTIL_PROFILED - 1)
    training.adopt(SPARSE)
    return training.steps(NUM_UNTIL_PROFILED).ended()


def test_no_profile_is_of_two_plans(rank_pool: RankPool) -> None:
    [profile], _ = rank_pool.run_in_process_group(SIZE, changed_meanwhile)
    assert profile.plan == SPARSE
    assert profile.step == 2 * NUM_UNTIL_PROFILED - 2


def compiled(rank: int, size: int) -> tuple[list[Profile], int]:
    compilations = 0

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        nonlocal compilations
        compilations += 1
        return graph.forward

    def build(clock: Clock) -> nn.Module:
        return nn.Sequential(torch.compile(nn.Linear(4, 8), backend=backend), Timed(8, 1, clock, 1.0, 2.0))

    return Training(rank, DENSE, build).steps(NUM_UNTIL_PROFILED).ended(), compilations


@pytest.mark.pattern("`torch.compile` of parts of it", works="works")
def test_a_model_with_compiled_parts_is_not_compiled_anew(rank_pool: RankPool) -> None:
    ([profile], compilations), _ = rank_pool.run_in_process_group(SIZE, compiled)
    assert compilations == 1
    assert profile.modules == ()
    assert (profile.lead_seconds, profile.backward_seconds) == (1.125, 2.0)
