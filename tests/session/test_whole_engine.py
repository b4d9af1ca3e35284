"""Whatever follows each other in training (trials, steps dropped or thrown away, changes of plan, schedule and source,
rounds that end early), nothing that ranks computed is lost or counted twice, and all are at the same weights.

The optimizer is SGD, so that all adds up in the unit of weights, under either source::

    lr x sum of all gradients == N x (weights then - weights now) + what ranks hold back, and what waits or has arrived
"""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from kit.in_process import InProcess
from kit.rank_pool import RankPool
from kit.training import toy_schedules
from kit.training.engines import engine_of
from kit.training.exchanging_rank import PLANNED, assert_same, timetable_drawn
from torch import Tensor, nn
from trimtab.engine import checkpoint as carried_state
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.recorder import Recorder
from trimtab.session.session import Session
from trimtab.transport.group import Group
from trimtab_api.catalogue import DENSE_COLLECTIVES, SPARSE_COLLECTIVES, sparsifiers

SIZE = 3
SHAPES = ((7, 5), (1,), (40, 11), (3,), (200,))
NUM_ELEMENTS = 35 + 1 + 440 + 3 + 200
LEARNING_RATE = 0.5
EVENTS = ("go on",) * 4 + ("re-plan", "re-plan", "drop", "throw away", "trial", "end of round")
SPARSIFIERS = (*(name for name in sparsifiers.built_in if name != "hard-threshold"), "hard-threshold:threshold=0.5")
OPTIONS = {"spardl": ("", ":teams=3"), "exdyna": ("", ":partition=coarse", ":threshold=paper")}
WHOLE = ("wait-free", "after-backward")
DELAYING = (*PLANNED, "toy-every-second-later", "toy-one-behind", "toy-queues")
OF_UPDATES = (*(each for each in DELAYING if each != "deft"), "overlap")


def plan_drawn(draw: random.Random) -> Plan:
    cuts = (0, *sorted(draw.sample(range(1, NUM_ELEMENTS), draw.randrange(5))))
    fusion, collective = FusionPlan(cuts, draw.choice(("ahead", "behind"))), draw.choice(SPARSE_COLLECTIVES)
    collective += draw.choice(OPTIONS.get(collective, ("",)))
    plan = Plan(draw.choice((0.01, 0.1, 0.5)), collective, draw.choice(SPARSIFIERS), fusion)
    if draw.random() < 0.2:
        plan = Plan(1.0, draw.choice(DENSE_COLLECTIVES), fusion=fusion)
    plan = replace(plan, wire=draw.choice(plan.row.wires))
    if draw.random() < 0.4:
        plan, known = replace(plan, source=f"update:steps={draw.randrange(1, 4)}"), (*WHOLE, *OF_UPDATES)
    else:
        plan, known = replace(plan, source=draw.choice(("gradient", "gradient:warmup=20"))), (*WHOLE, *DELAYING)
    schedule = draw.choice(known)
    return replace(plan, schedule=schedule, timetable=timetable_drawn(draw, schedule, len(cuts)))


class Rank:
    """One rank's engine, wired as a session does it, and the gradients that went in."""

    def __init__(self, group: Group, plan: Plan) -> None:
        self.group = group
        self.device = group.transport.device
        zeros = [torch.zeros(shape, device=self.device) for shape in SHAPES]
        self.model = nn.ParameterList(map(nn.Parameter, zeros))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE)
        self.session = Session(self.model, optimizer, group=group, plan=plan, recorder=Recorder(None))
        self.engine = engine_of(self.session)
        self.random = torch.Generator().manual_seed(group.rank)
        self.round: list[Tensor] = []
        """Gradients of a round of local steps that has not ended: lost, where it is dropped."""
        self.entered = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
        self.magnitude = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)

    @property
    def is_in_round(self) -> bool:
        return self.engine.local is not None and self.engine.local.num_taken > 0

    def step(self, draw: random.Random, *, spoils: bool) -> None:
        """One step of training; ``spoils``: some gradient is not finite on one rank, where that shows at once."""
        engine = self.engine
        unused = draw.choice((None, None, None, 0, 2, 4))
        spoiled = draw.randrange(NUM_ELEMENTS) if engine.local is not None else self.element_to_spoil(draw)
        gradients = [torch.randn(shape, generator=self.random) for shape in SHAPES]
        used = [index for index in range(len(SHAPES)) if index != unused]
        flat = self.flat([each if index in used else torch.zeros(()) * each for index, each in enumerate(gradients)])
        is_here = engine.step_tag.step % SIZE == self.group.rank
        spoils = spoils and spoiled is not None and bool(flat_index_is_used(spoiled, unused))
        if spoils and is_here:
            assert spoiled is not None
            flat[spoiled] = float("inf")
        parts = [part.to(self.device) for part in self.parts(flat)]
        sum((self.model[index] * parts[index].float()).sum() for index in used).backward()
        was_local = engine.local is not None
        outcome = engine.step()
        assert outcome.is_finite or (spoils and not was_local)
        if was_local:
            self.round.append(torch.zeros_like(flat) if spoils and is_here else flat)
            if not self.is_in_round:
                self.end_round()
        elif not spoils:
            self.enter(flat)

    def throw_away(self, draw: random.Random) -> None:
        """A backward pass whose gradients the script clears, with a word to the session or without."""
        gradients = [torch.randn(shape, generator=self.random).to(self.device) for shape in SHAPES]
        sum((parameter * each).sum() for parameter, each in zip(self.model, gradients, strict=True)).backward()
        if draw.random() < 0.5:
            self.engine.skip()
        for parameter in self.model:
            parameter.grad = None

    def end_round(self) -> None:
        for flat in self.round:
            self.enter(flat)
        self.round = []

    def enter(self, flat: Tensor) -> None:
        self.entered += LEARNING_RATE * flat
        self.magnitude += LEARNING_RATE * flat.abs()

    def element_to_spoil(self, draw: random.Random) -> int | None:
        """One that is sent in this very step: of what is not sent, nobody would know before it is."""
        sent = sorted(self.engine.exchanger.dispatcher.present)
        if not sent:
            return None
        span = self.engine.exchanger.buckets[draw.choice(sent)].span
        return draw.randrange(span.start, span.stop)

    def flat(self, tensors: list[Tensor]) -> Tensor:
        """In the order of the flat buffers: the last parameter first."""
        return torch.cat([tensor.detach().cpu().double().reshape(-1) for tensor in reversed(tensors)])

    def parts(self, flat: Tensor) -> list[Tensor]:
        sizes = [self.model[index].numel() for index in reversed(range(len(SHAPES)))]
        return [part.view(shape) for part, shape in zip(reversed(flat.split(sizes)), SHAPES, strict=True)]

    def balance(self) -> dict[str, Tensor]:
        engine = self.engine
        engine.settle()
        weights = self.flat(list(self.model))
        anchor = weights if engine.local is None else engine.local.anchor.cpu().double()
        began_at = weights if engine.local is None else self.flat(engine.local.began_at()[::-1])
        unit = LEARNING_RATE if engine.local is None else 1.0
        waiting, arrived = torch.zeros_like(weights), torch.zeros_like(weights)
        for bucket in engine.exchanger.buckets:
            for held, total in ((bucket.waiting, waiting), (bucket.arrived, arrived)):
                for each in held:
                    total[bucket.span.start : bucket.span.stop] += unit * each.values.cpu()
        pending_step = unit * engine.flat_buffers.residual.cpu().double() + waiting + (began_at - weights)
        local = sum(self.round, torch.zeros_like(weights)) * LEARNING_RATE
        return {
            "entered": self.entered + local,
            "magnitude": self.magnitude + local.abs() + anchor.abs(),
            "moved": -anchor + arrived,
            "owed": pending_step,
        }

    def state(self) -> Any:
        weights = [parameter.detach().clone() for parameter in self.model]
        return copy.deepcopy(
            (carried_state.step_state(self.engine), self.engine.flat_buffers.residual, weights, self.engine.step_tag)
        )


def flat_index_is_used(element: int, unused: int | None) -> bool:
    """Whether the element, in the order of the flat buffers, is of a parameter that has a gradient."""
    for index in reversed(range(len(SHAPES))):
        num_elements = torch.Size(SHAPES[index]).numel()
        if element < num_elements:
            return index != unused
        element -= num_elements
    return False


def tried(rank: Rank, draw: random.Random) -> None:
    """A candidate is tried, and undone bit for bit, as `trimtab.session.trials` does it."""
    engine, before = rank.engine, rank.state()
    kept = copy.deepcopy((rank.entered, rank.magnitude, rank.random.get_state()))
    snapshot, carried = rank.session._training._snapshot(engine), copy.deepcopy(carried_state.step_state(engine))
    in_force, step = engine.plan, engine.step_tag.step
    candidate = plan_drawn(draw).with_version(in_force.version)
    engine.plans.try_out(candidate, step, trial=1)
    if bool(candidate.local_steps) != bool(in_force.local_steps):  # whose unit is another
        assert engine.exchanger.buckets.are_empty
        assert not engine.flat_buffers.residual.any()
    for _ in range(draw.randrange(1, 5)):
        rank.step(draw, spoils=draw.random() < 0.2)
    rank.round = []
    snapshot.restore()
    engine.plans.resume(in_force, step)
    carried_state.load_step_state(engine, carried)
    assert_same(before, rank.state())
    rank.entered, rank.magnitude = kept[:2]
    rank.random.set_state(kept[2])


def fuzz(group: Group, seed: int, num_events: int) -> tuple[list[str], list[dict[str, Tensor]]]:
    draw = random.Random(seed)  # the same on every rank
    subject = Rank(group, plan_drawn(draw))
    seen, balances = [], []
    for _ in range(num_events):
        event = draw.choice(EVENTS)
        if event == "re-plan" or (event == "trial" and subject.is_in_round):
            if subject.is_in_round:  # a message of rank 0 comes with a vote, and that with the end of a round
                subject.engine.rounds.end()
                subject.end_round()
            subject.engine.plans.adopt(plan_drawn(draw).with_version(len(seen)), subject.engine.step_tag.step)
        elif event == "trial":
            tried(subject, draw)
        elif event == "throw away":
            subject.throw_away(draw)
        elif event == "end of round":
            local = subject.engine.local
            is_under_way = local is not None and local.is_under_way
            assert (subject.engine.rounds.end() is not None) == is_under_way
            subject.end_round()
        else:
            subject.step(draw, spoils=event == "drop")
        seen.append(f"{event} under {subject.engine.plan.name}")
        balances.append(subject.balance())
    subject.session.close()
    return seen, balances


def groups(size: int = SIZE) -> list[Group]:
    """Ranks that are threads of this process, joined by two links."""
    links = [{(a, b): SimpleQueue() for a in range(size) for b in range(size)} for _ in range(2)]
    first, second = ([Group(InProcess(rank, size, queues)) for rank in range(size)] for queues in links)
    for group, further in zip(first, second, strict=True):
        group.extra_links = (further,)
    return first


@pytest.mark.parametrize("seed", [0, 2, 3, 5, 263])
def test_all_that_ranks_compute_moves_the_weights_or_is_held_back_whatever_happens(seed: int) -> None:
    toy_schedules.register()
    with ThreadPoolExecutor(SIZE) as ranks:
        answers = list(ranks.map(fuzz, groups(), [seed] * SIZE, [40] * SIZE))
    check(answers)


def fuzz_on_gpu(rank: int, size: int, seed: int, num_events: int) -> tuple[list[str], list[dict[str, Tensor]]]:
    toy_schedules.register()
    group = Group.connect(deadline=30)
    link = Group.connect(deadline=30)
    link.transport.has_own_all_reduce = False  # NCCL sums in one order on all ranks, which two links do not keep
    group.extra_links = (link,)
    return fuzz(group, seed, num_events)


@pytest.mark.cuda
@pytest.mark.parametrize("seed", [0, 2, 3, 5, 263])
def test_all_that_ranks_compute_on_a_gpu_moves_the_weights_or_is_held_back(gpu_rank_pool: RankPool, seed: int) -> None:
    check(gpu_rank_pool.run_in_process_group(SIZE, fuzz_on_gpu, seed, 40))


def check(answers: list[tuple[list[str], list[dict[str, Tensor]]]]) -> None:
    """All sources and events came, and after each the balance holds on every rank, and all are at one place."""
    events = answers[0][0]
    assert len({event.partition(" under")[0] for event in events}) == len(set(EVENTS))
    assert len({"source=update" in event for event in events}) == 2, "both sources"
    for number, balances in enumerate(zip(*(each for _, each in answers), strict=True)):
        total = {name: torch.stack([each[name] for each in balances]).sum(0) for name in balances[0]}
        found = total["moved"] + total["owed"]
        allowed = 2**-18 * (total["magnitude"] + 1)
        wrong = int(((total["entered"] - found).abs() > allowed).sum())
        assert wrong == 0, f"{wrong} elements after event {number}: {events[: number + 1]}"
        assert all(torch.equal(each["moved"], balances[0]["moved"]) for each in balances), f"{number}: {events[number]}"


def a_gradient_that_waits_is_not_finite(group: Group, plan: Plan) -> tuple[Rank, carried_state.State]:
    """On rank 0; every other rank's is 1 everywhere, and none is sent in its own step."""
    subject = Rank(group, Plan(1.0, "dense-ring", schedule="toy-queues"))
    gradient = float("inf") if group.rank == 0 else 1.0
    sum((parameter * torch.full_like(parameter, gradient)).sum() for parameter in subject.model).backward()
    assert subject.engine.step().is_finite
    kept = copy.deepcopy(carried_state.carried(subject.engine))
    subject.engine.plans.adopt(plan, subject.engine.step_tag.step)
    subject.session.close()
    return subject, kept


def goes_on(group: Group, states: dict[int, carried_state.State]) -> Rank:
    subject = Rank(group, Plan(1.0, "dense-ring"))
    carried_state.take_over(subject.engine, states, SIZE)
    subject.session.close()
    return subject


def test_what_waits_and_is_not_finite_is_lost_where_the_source_or_the_number_of_ranks_changes() -> None:
    toy_schedules.register()
    plan = Plan(0.1, "all-gather", source="update:steps=2")
    with ThreadPoolExecutor(SIZE) as ranks:
        before = list(ranks.map(a_gradient_that_waits_is_not_finite, groups(), [plan] * SIZE))
        after = list(ranks.map(goes_on, groups(size=2), [{rank: state for rank, (_, state) in enumerate(before)}] * 2))
    held_back = [subject.engine.flat_buffers.residual.tolist() for subject, _ in before]
    assert sorted(map(max, held_back)) == sorted(map(min, held_back)), "every element alike"
    assert sorted(map(max, held_back)) == pytest.approx([0.0, *[LEARNING_RATE] * (SIZE - 1)])
    for subject, others in zip(after, (1, 1), strict=True):  # ranks 0 and 2 go on as 0, and rank 1 as 1
        assert not subject.engine.flat_buffers.residual.any()
        waiting = torch.cat([held.values for bucket in subject.engine.exchanger.buckets for held in bucket.waiting])
        torch.testing.assert_close(waiting, torch.full((NUM_ELEMENTS,), others * 2 / SIZE))
