"""What schedules bring in the model of a step, and what merged updates do to training.

The tables of docs/measurements/schedules.md:

    python tests/schedule/measure_schedules.py                   # steps and updates a second, by coverage rate
    python tests/schedule/measure_schedules.py --train --seeds 3 # accuracy and loss of digits under DeFT's updates

No network and no ranks: the first adds up recorded times, the second trains on the mean gradient of four ranks' batches
and lets the optimizer have it when the timetable says. Minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor, nn
from trimtab.plan import Plan
from trimtab.profile import ModuleTimes, Profile
from trimtab.schedule import StepFacts, planned, queues
from trimtab.schedule.preserver import LossModel, preserved
from trimtab.schedule.simulation import step_seconds
from trimtab.schedule.step_times import StepTimes
from trimtab.timetable import Iteration, Send, Timetable
from trimtab.workloads import digits

RATES = (0.5, 1.0, 1.5, 2.0, 3.0)
SCHEDULES = ("wait-free", "priority", "us-byte", "deft:preserver=off")
LATENCY = 1e-3
RANKS, BATCH, MOMENTUM = 4, 16, 0.9
#: Steps after which the Preserver is asked, until it lets a timetable pass: as a job's profiles come.
PROFILED = (7, 507, 1007, 1507)


@dataclass(frozen=True)
class Model:
    """Layers in forward order: seconds forward and backward, elements."""

    name: str
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    elements: tuple[int, ...]
    cut_every: int
    """Layers of a buffer before schedules cut it."""

    def profile(self) -> Profile:
        sizes = self.elements[::-1]
        starts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        count = len(sizes)
        modules = tuple(
            ModuleTimes(f"m{i}", starts[count - 1 - i], starts[count - i], self.forward[i], self.backward[i])
            for i in range(count)
        )
        lead = sum(self.forward)
        return Profile(9, 5, Plan.parse("dense"), lead, self.backward[::-1], modules, (), 1.0, 1e-6, 1e-3, 0.01)

    def facts(self, rate: float) -> StepFacts:
        """At a bandwidth where the buffers as they are have this coverage rate."""
        cuts, total = self.cuts(), sum(self.elements)
        computing = sum(self.forward) + sum(self.backward)
        each = (rate * computing - len(cuts) * LATENCY) / total
        return StepFacts(self.elements[::-1], lambda size: 0.0, lambda size: LATENCY + size * each, is_sgd=True)

    def cuts(self) -> tuple[int, ...]:
        sizes = self.elements[::-1]
        return tuple(sum(sizes[:i]) for i in range(0, len(sizes), self.cut_every))


#: The buckets of DeFT's Table II, whose seconds those are; elements in proportion to theirs on the wire.
VGG = Model(
    "VGG-19",
    (0.001238, 0.028799, 0.004801, 0.001899, 0.000326, 0.000103),
    (0.072496, 0.012786, 0.004872, 0.002319, 0.000484, 0.000162),
    tuple(int(143.65e6 * share / 257725) for share in (1968, 11262, 15447, 178643, 31754, 8651)),
    1,
)
#: Computing even by layer and parameters towards the output, in the sums of DeFT's Table I.
RESNET = Model(
    "ResNet-101",
    (0.059 / 33,) * 33,
    (0.118 / 33,) * 33,
    tuple(int(44.65e6 * (i + 1) ** 2 / sum((j + 1) ** 2 for j in range(33))) for i in range(33)),
    4,
)
#: Twelve blocks alike between an embedding and a head that are larger.
GPT = Model(
    "GPT-2",
    (0.005, *(0.0130,) * 12, 0.008),
    (0.012, *(0.0295,) * 12, 0.015),
    (19_000_000, *(3_600_000,) * 12, 19_000_000),
    1,
)


def wait_free(num_buckets: int) -> Timetable:
    return Timetable((), (Iteration(tuple(Send(bucket, 0) for bucket in range(num_buckets)), 0),))


def print_throughput() -> None:
    print("| model | coverage rate | schedule | buckets | step | iterations an update | time an update |")
    print("|---|---|---|---|---|---|---|")
    for model in (RESNET, VGG, GPT):
        for rate in RATES:
            for name in SCHEDULES:
                facts, profile = model.facts(rate), model.profile()
                made = planned(name, model.cuts(), profile=profile, facts=facts)
                times = facts.times(profile, made.cuts)
                timetable = made.timetable or wait_free(len(made.cuts))
                computing = sum(times.forward) + sum(times.backward)
                step, merged = step_seconds(times, timetable) / computing, timetable.iterations_per_update
                row = (
                    model.name,
                    f"{rate:g}",
                    name,
                    len(made.cuts),
                    f"{step:.2f}",
                    f"{merged:.2f}",
                    f"{step * merged:.2f}",
                )
                print("| " + " | ".join(map(str, row)) + " |")


def even(rate: float, num_buckets: int = 16) -> StepTimes:
    each = 1 / num_buckets
    return StepTimes(*((seconds * each,) * num_buckets for seconds in (1 / 3, 2 / 3, 0.0, rate)))


def taken(timetable: Timetable, t: int, before: int) -> tuple[Sequence[int], int]:
    """The iterations whose average an iteration's update takes, and the newest of them; none where it has none."""
    update = timetable.iteration(t).update
    return ((), before) if update is None else (range(before + 1, update + 1), update)


def train(rate: float, seed: int, steps: int, learning_rate: float, preserver: bool | None) -> tuple[float, float, int]:
    """Held-out accuracy, mean loss of the last steps, and updates; ``preserver`` None: an update in each step."""
    torch.manual_seed(seed)
    data, held_out = digits.data(seed)
    images, labels = data.tensors
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=MOMENTUM)
    criterion, parameters = nn.CrossEntropyLoss(label_smoothing=0.1), list(network.parameters())
    draws = torch.Generator().manual_seed(seed)
    timetable, since, newest, updates = None if preserver is not False else queues.timetable(even(rate)), 0, -1, 0
    kept: dict[int, Sequence[Tensor]] = {}
    losses: list[float] = []

    def gradient(batch: Tensor) -> tuple[float, Sequence[Tensor]]:
        loss = criterion(network(images[batch]), labels[batch])
        return loss.item(), torch.autograd.grad(loss, parameters)

    for step in range(steps):
        batches = torch.randint(len(labels), (RANKS, BATCH), generator=draws)
        loss, mean_gradient = gradient(batches.flatten())
        losses.append(loss)
        t = step - since
        kept[t] = mean_gradient
        generations, newest = ((t,), t) if timetable is None else taken(timetable, t, newest)
        if generations:
            for index, parameter in enumerate(parameters):
                parameter.grad = torch.stack([kept[each][index] for each in generations]).mean(0)
            optimizer.step()
            updates += 1
            kept = {each: gradient for each, gradient in kept.items() if each > newest}
        if preserver and timetable is None and step in PROFILED:
            ranks = [gradient(batch)[1] for batch in batches]
            timetable, since, newest, kept = judged(rate, losses[-5:], ranks, learning_rate), step + 1, -1, {}
    accuracy, _ = digits.evaluate(network, held_out)
    return accuracy, mean(losses[-20:]), updates


def judged(rate: float, losses: list[float], ranks: list[Sequence[Tensor]], learning_rate: float) -> Timetable | None:
    """What the Preserver lets pass at this stage of training."""
    means = [torch.stack(each).mean(0) for each in zip(*ranks, strict=True)]
    square = float(sum(each.square().sum() for each in means))
    variance = mean(float(sum((g - m).square().sum() for g, m in zip(rank, means, strict=True))) for rank in ranks)
    noise = (square * variance / sum(each.numel() for each in means)) ** 0.5
    model = LossModel(mean(losses), learning_rate / (1 - MOMENTUM), square, noise)
    return preserved(lambda scale: queues.timetable(even(rate), scale), queues.merged, model)


def print_training(seeds: int, steps: int, learning_rate: float) -> None:
    print(f"{steps} steps, learning rate {learning_rate:g}, {seeds} seeds")
    print("| coverage rate | schedule | held-out accuracy, by seed | loss of the last 20 steps | updates |")
    print("|---|---|---|---|---|")
    for rate in (1.0, 1.5, 2.0, 3.0):
        for name, preserver in (("each step", None), ("deft", True), ("deft:preserver=off", False)):
            if preserver is None and rate > 1:
                continue
            runs = [train(rate, seed, steps, learning_rate, preserver) for seed in range(1, seeds + 1)]
            accuracies = ", ".join(f"{accuracy:.1%}" for accuracy, _, _ in runs)
            row = (f"{rate:g}", name, accuracies, f"{mean(r[1] for r in runs):.3f}", f"{mean(r[2] for r in runs):.0f}")
            print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.train:
        print_training(arguments.seeds, arguments.steps, arguments.learning_rate)
    else:
        print_throughput()


if __name__ == "__main__":
    main()
