"""One rank's exchanger alone, over gradients that a test chooses, under plans that a test draws."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from kit.training import toy_schedules
from torch import Tensor, nn
from trimtab.engine.exchange.exchanger import Exchanger
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.papers.bytescheduler import priority
from trimtab.papers.deft import queues
from trimtab.papers.us_byte import us_byte
from trimtab.plan.plan import Plan
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Timetable
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import Group

SHAPES = ((7, 5), (1,), (40, 11), (3,), (200,))
NUM_ELEMENTS = 35 + 1 + 440 + 3 + 200
PLANNED = {
    "deft": queues.timetable,
    "priority": priority.timetable,
    "priority:credit=3": partial(priority.timetable, num_links=3),
    "us-byte": us_byte.timetable,
}
SCHEDULES = ("wait-free", "after-backward", *PLANNED, *(toy.name for toy in toy_schedules.TOYS))


class Rank:
    """One rank's exchanger over parameters whose gradients a test chooses, and what went in and out of it."""

    def __init__(self, group: Group, plan: Plan) -> None:
        toy_schedules.register()
        self.group = group
        self.parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        self.flat_buffers = FlatBuffers([(f"p{i}", parameter) for i, parameter in enumerate(self.parameters)])
        if not group.extra_links:  # kept, as the group is, from one test to the next
            extra_links.join(group, "lo", b"", 30.0)
        self.exchanger = Exchanger(self.flat_buffers, group, plan, weights=lambda: ())
        self.random = torch.Generator().manual_seed(group.rank)
        self.entered = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
        self.handed = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
        self.magnitude = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)

    def gradient(self) -> list[Tensor]:
        return [torch.randn(shape, generator=self.random) for shape in SHAPES]

    def backward(self, gradients: list[Tensor]) -> None:
        pairs = zip(self.parameters, gradients, strict=True)
        sum((parameter * gradient).sum() for parameter, gradient in pairs).backward()

    def iterate(self, gradients: list[Tensor]) -> bool:
        """One iteration; whether it was kept."""
        if self.exchanger.step_tag.step % 2:
            self.exchanger.begin()  # as where a forward pass precedes
        self.backward(gradients)
        outcome = self.exchanger.finish()
        if outcome.is_finite:
            entered = in_arena_order(gradients)
            self.entered += entered
            self.magnitude += entered.abs()
            if outcome.updates:
                self.take()
            self.exchanger.commit()
        else:
            self.exchanger.drop()
        self.flat_buffers.release_gradients()
        return outcome.is_finite

    def take(self) -> None:
        """What the optimizer is given, in as many parts as it comes."""
        self.exchanger.arrivals.defer()
        self.handed += self.given()
        while self.exchanger.late():
            self.flat_buffers.release_gradients()
            self.exchanger.arrivals.write_deferred({self.exchanger.late()[-1].span.first})
            self.handed += self.given()

    def given(self) -> Tensor:
        return in_arena_order([torch.zeros(p.shape) if p.grad is None else p.grad for p in self.parameters])

    def adopt(self, plan: Plan, step: int, trial: int = 0) -> None:
        self.exchanger.adopt(plan)
        self.exchanger.restart(step, trial)

    def held(self, name: str) -> Tensor:
        """All that waits, or has arrived, by element."""
        total = torch.zeros(NUM_ELEMENTS, dtype=torch.float64)
        for bucket in self.exchanger.buckets:
            for held in getattr(bucket, name):
                total[bucket.span.start : bucket.span.stop] += held.values
        return total

    def balance(self) -> dict[str, Tensor]:
        return {
            "entered": self.entered.clone(),
            "handed": self.handed.clone(),
            "residual": self.flat_buffers.residual.double(),
            "waiting": self.held("waiting"),
            "arrived": self.held("arrived"),
            "magnitude": self.magnitude.clone(),
        }

    def state(self) -> Any:
        return copy.deepcopy((self.exchanger.state_dict(), self.flat_buffers.residual, self.exchanger.step_tag))


def in_arena_order(tensors: list[Tensor]) -> Tensor:
    """In the order of the flat buffers: the last parameter first."""
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in reversed(tensors)])


def timetable_drawn(draw: random.Random, schedule: str, num_buckets: int) -> Timetable | None:
    """What a planner makes of some step's times; updates are sums here, whose balance is easier to keep."""
    if schedule not in PLANNED:
        return None
    forward, backward, wire = (tuple(draw.random() for _ in range(num_buckets)) for _ in range(3))
    times = StepTimes(forward, backward, (0.0,) * num_buckets, tuple(draw.choice((1, 4)) * each for each in wire))
    return replace(PLANNED[schedule](times), averages=False)


def spoil(gradients: list[Tensor], element: int, is_here: bool) -> None:
    """Make one element, in the order of the flat buffers, infinite on one rank."""
    for gradient in reversed(gradients):
        if element < gradient.numel():
            if is_here:
                gradient.view(-1)[element] = float("inf")
            return
        element -= gradient.numel()


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)) and not hasattr(a, "code"):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    else:
        assert a == b


CUTS = (0, 200, 300, 640)  # the second lies inside a tensor
