"""What schedules bring in the model of a step, and what merged updates do to training.

    python benchmarks planning/schedules                   # steps and updates a second, by coverage rate
    python benchmarks planning/schedules --train --seeds 3 # accuracy and loss of digits under DeFT's updates
    python benchmarks planning/schedules --ablation        # the same without the Preserver, without a second link
    python benchmarks planning/schedules --targets --steps 1500    # steps to the target, by learning rate
    python benchmarks planning/schedules --targets --task cnn      # the same of a CNN with batch norm, or gpt
    python benchmarks planning/schedules --measured        # steps of ranks on an emulated network; as root
    python benchmarks planning/schedules --measured --latency 0.025    # where startups dominate

The first four have no network and no ranks: they add up recorded times, or train on the mean gradient of four ranks'
batches and let the optimizer have it when the timetable says. Minutes on one core. The last runs the engine's own
steps, whose layers sleep for as long as they would take (`trimtab.evaluation.bench.replayed`), and says how
long updates and the target take at that pace.

Needs nothing more; --measured: root and /dev/net/tun; takes a minute to an hour by its flag.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import mean

import torch
from results import record
from simulated_tasks import TASKS
from torch import Tensor
from trimtab.engine.profiling.loss_monitor import DelayWatch, LossFall
from trimtab.engine.profiling.profiler import STEPS_BETWEEN_DELAYED
from trimtab.papers.deft import queues
from trimtab.papers.deft.knapsack import Orders
from trimtab.papers.deft.preserver import is_too_early, loss_model, preserved
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.plan.profile import ModuleTimes, Profile
from trimtab.plan.schedules import StepFacts, planned
from trimtab.plan.schedules.step_times import StepTimes
from trimtab.plan.timetable import Iteration, Send, Timetable

RATES = (0.5, 1.0, 1.5, 2.0, 3.0)
SCHEDULES = ("wait-free", "priority", "us-byte", "deft:preserver=off")
LATENCY = 1e-3
RANKS, BATCH, MOMENTUM = 4, 16, 0.9
#: Steps after which steps were profiled, and so many of them: as a job's profiles come before DeFT has a timetable.
PROFILED, NUM_PROFILED = (7, 507, 1007, 1507), 5
#: Of the best of the other schedules to DeFT's, as measured on four ranks: steps by coverage rate.
THROUGHPUT = {1.0: 1.24, 1.5: 1.50, 2.0: 1.75}
WINDOW = 20
"""Steps over whose mean the loss is to reach a task's target."""
#: What is measured: 1 Gbit/s, eight equal buffers of sixteen layers of a quarter of a million elements.
WORKERS, BANDWIDTH = 4, 1e9
LAYERS, LAYER_ELEMENTS = 16, 250_000
MEASURED = ("wait-free", "priority:credit=1", "priority", "us-byte", "deft:preserver=off")
SPEED_RATIO = 1.65
"""Of the fast link to the slow one, as the paper has it of NCCL and Gloo."""


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
                step, merged = times.step_seconds(timetable) / computing, timetable.iterations_per_update
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


@dataclass(frozen=True)
class Trained:
    accuracy: float
    """Held out."""
    loss: float
    """Mean of the last steps."""
    updates: int
    steps_to_target: int | None
    """None where it was not reached."""
    delayed_steps: int
    """Of those to the target, under DeFT's timetable; the others were as under the best of the other schedules."""


def train(
    task_name: str,
    rate: float,
    seed: int,
    steps: int,
    learning_rate: float,
    preserver: bool | None,
    links: tuple[float, ...] = (1.0,),
    merged: str = "mean",
    *,
    ends_at_target: bool = False,
) -> Trained:
    """``preserver`` None: an update in each step. ``merged``: as the option of DeFT.

    Under ``auto`` the Preserver is asked at each profile; else until it lets a timetable pass.
    """
    torch.manual_seed(seed)
    task = TASKS[task_name](seed)
    parameters = list(task.network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=learning_rate, momentum=MOMENTUM)
    num_elements = sum(each.numel() for each in parameters)
    draws = torch.Generator().manual_seed(seed)
    times = replace(even(rate), link_slowness=links)
    timetable, since, newest, updates = None, 0, -1, 0
    if preserver is False:
        timetable = replace(queues.timetable(times), averages=merged == "mean")
    kept: dict[int, Sequence[Tensor]] = {}
    losses, delayed, fall, delay = list[float](), list[bool](), LossFall(), DelayWatch()
    norms: list[float] = []
    """Squared, of the mean gradients of updates since the last profile."""
    noise, harmed_at = 0.0, None

    def gradient(batch: Tensor) -> tuple[float, Sequence[Tensor]]:
        loss = task.loss(batch)
        return loss.item(), torch.autograd.grad(loss, parameters)

    for step in range(steps):
        batches = torch.randint(task.num_samples, (RANKS, BATCH), generator=draws)
        loss, mean_gradient = gradient(batches)
        losses.append(loss)
        fall.add(loss)
        delayed.append(timetable is not None)
        t = step - since
        kept[t] = mean_gradient
        generations, newest = ((t,), t) if timetable is None else taken(timetable, t, newest)
        if generations:
            for index, parameter in enumerate(parameters):
                gradients = torch.stack([kept[each][index] for each in generations])
                averages = timetable is None or timetable.averages
                parameter.grad = gradients.mean(0) if averages else gradients.sum(0)
            optimizer.step()
            updates += 1
            norms.append(squared_norm(p.grad for p in parameters) / (1 if averages else len(generations)) ** 2)
            kept = {each: gradient for each, gradient in kept.items() if each > newest}
        is_profiled = step in PROFILED or (merged == "auto" and (step - PROFILED[0]) % STEPS_BETWEEN_DELAYED == 0)
        if delay.add(loss, is_delayed=timetable is not None and timetable.delays):
            is_profiled, harmed_at = is_profiled or merged == "auto", learning_rate / (1 - MOMENTUM)
        if preserver and is_profiled and (timetable is None or merged == "auto"):
            if timetable is None and (step in PROFILED or not noise):
                ranks = [gradient(batch)[1] for batch in batches.split(1)]
                noise = mean(squared_norm(g - m for g, m in zip(rank, mean_gradient, strict=True)) for rank in ranks)
            stage = profile_of(step, losses, norms, noise, learning_rate, fall, timetable, num_elements)
            made = judged(times, replace(stage, delay_harmed_at=harmed_at), merged)
            if made != timetable:
                timetable, since, newest, kept = made, step + 1, -1, {}
            norms = []
        if ends_at_target and len(losses) >= WINDOW and mean(losses[-WINDOW:]) <= task.target:
            break
    reached = reached_after(losses, task.target)
    return Trained(task.accuracy(), mean(losses[-20:]), updates, reached, sum(delayed[:reached]))


def reached_after(losses: Sequence[float], target: float) -> int | None:
    """Steps until the mean of the last `WINDOW` losses was at the target."""
    means = (mean(losses[end - WINDOW : end]) for end in range(WINDOW, len(losses) + 1))
    return next((end for end, loss in enumerate(means, WINDOW) if loss <= target), None)


def squared_norm(tensors: Iterable[Tensor]) -> float:
    return float(sum(each.square().sum() for each in tensors))


def profile_of(
    step: int,
    losses: list[float],
    norms: list[float],
    variance: float,
    learning_rate: float,
    fall: LossFall,
    timetable: Timetable | None,
    num_elements: int,
) -> Profile:
    """What a profile at ``step`` says of training; the times are those of `even`."""
    plan = replace(Plan.parse("dense/schedule=deft", FusionPlan(tuple(range(16)))), timetable=timetable)
    everything = (ModuleTimes("all", 0, num_elements, 0.0, 0.0),)
    return Profile(
        step,
        NUM_PROFILED,
        plan,
        *(0.0, (), everything, ()),
        loss=mean(losses[-NUM_PROFILED:]),
        squared_gradient_norm=mean(norms[-NUM_PROFILED:]),
        gradient_variance=variance,
        learning_rate=learning_rate / (1 - MOMENTUM),
        loss_fall=fall.until(step),
    )


def judged(times: StepTimes, profile: Profile, merged: str) -> Timetable | None:
    """What the Preserver lets pass at this stage of training, as `trimtab.papers.deft.deft` asks it."""
    sums = merged == "auto"
    if sums and (is_too_early(profile) or not profile.tolerates_staleness(is_sgd=True)):
        return None
    model = loss_model(profile, is_sgd=True, sums=sums)
    return preserved(lambda scale: replace(queues.timetable(times, scale), averages=not sums), queues.merged, model)


def print_training(task: str, seeds: int, steps: int, learning_rate: float) -> None:
    print(f"{task}: {steps} steps, learning rate {learning_rate:g}, {seeds} seeds")
    print("| coverage rate | schedule | held-out accuracy, by seed | loss of the last 20 steps | updates | to target |")
    print("|---|---|---|---|---|---|")
    for rate in (1.0, 1.5, 2.0, 3.0):
        for name, preserver, merged in (
            ("each step", None, "mean"),
            ("deft", True, "auto"),
            ("deft:merged=mean", True, "mean"),
            ("deft:preserver=off", False, "mean"),
        ):
            if preserver is None and rate > 1:
                continue
            settings = (steps, learning_rate, preserver)
            runs = [train(task, rate, seed, *settings, merged=merged) for seed in range(1, seeds + 1)]
            print("| " + " | ".join((f"{rate:g}", name, *told(runs))) + " |", flush=True)


def told(runs: Sequence[Trained]) -> tuple[str, ...]:
    accuracies = ", ".join(f"{run.accuracy:.1%}" for run in runs)
    reached = [run.steps_to_target for run in runs if run.steps_to_target is not None]
    steps = f"{mean(reached):.0f}" if len(reached) == len(runs) else "not by all"
    return (accuracies, f"{mean(r.loss for r in runs):.3f}", f"{mean(r.updates for r in runs):.0f}", steps)


def first_that_fit(weights: Sequence[float], seconds: Sequence[float]) -> Orders:
    """In place of the knapsack: what comes first, as long as it fits."""
    totals = accumulate(weights)
    return (tuple(item for item, total in enumerate(totals) if total <= seconds[0]),)


def print_ablation(seeds: int, steps: int, learning_rate: float) -> None:
    """DeFT's parts taken away, at twice as much to send as to compute (DeFT, section V.D)."""
    print("| second link | solver | Preserver | step | iterations an update | accuracy | loss | updates | to target |")
    print("|---|---|---|---|---|---|---|---|---|")
    solve = queues._filler
    for links, solver, preserver in (
        ((1.0, SPEED_RATIO), True, True),
        ((1.0, SPEED_RATIO), True, False),
        ((1.0,), True, True),
        ((1.0,), True, False),
        ((1.0,), False, False),
    ):
        queues._filler = solve if solver else lambda _: first_that_fit
        times = replace(even(2.0), link_slowness=links)
        made = queues.timetable(times)
        runs = [train("digits", 2.0, seed, steps, learning_rate, preserver, links) for seed in range(1, seeds + 1)]
        parts = ["yes" if part else "no" for part in (len(links) == 2, solver, preserver)]
        row = (*parts, f"{times.step_seconds(made):.2f}", f"{made.iterations_per_update:.2f}", *told(runs))
        print("| " + " | ".join(row) + " |", flush=True)
    queues._filler = solve
    runs = [train("digits", 2.0, seed, steps, learning_rate, None) for seed in range(1, seeds + 1)]
    print(
        "| "
        + " | ".join(("no", "no", "no", f"{even(2.0).step_seconds(wait_free(16)):.2f}", "1.00", *told(runs)))
        + " |"
    )


def steps_to_target(
    task: str, rate: float, seeds: int, steps: int, learning_rate: float, merged: str | None
) -> tuple[float, float] | None:
    """Means over the seeds, and of those how many delay updates; None where one does not reach it.

    ``merged`` None: an update in each step; ``auto``: as the Preserver lets it pass, elsewhere whatever it costs.
    """
    preserver, merged = (None, "mean") if merged is None else (merged == "auto", merged)
    settings = (steps, learning_rate, preserver)
    runs = [train(task, rate, seed, *settings, merged=merged, ends_at_target=True) for seed in range(1, seeds + 1)]
    if any(run.steps_to_target is None for run in runs):
        return None
    return mean(run.steps_to_target or 0 for run in runs), mean(run.delayed_steps for run in runs)


def print_targets(task: str, seeds: int, steps: int, learning_rates: Sequence[float]) -> None:
    """Steps to the target, and the time over the best other schedule's, at some learning rates.

    By the mean and by the sum of what an update merges, whatever it costs, and as DeFT does by default.
    """
    kinds = ("mean", "sum", "auto")
    print("| learning rate | an update in each step | coverage rate |", end="")
    print(" by the mean, steps and time | by the sum | by default | of these delayed |")
    print("|---|---|---|---|---|---|---|")
    by_default: list[float | None] = []
    for learning_rate in learning_rates:
        each = steps_to_target(task, 1.0, seeds, steps, learning_rate, None)
        for rate in (1.0, 1.5, 2.0):
            needed = [steps_to_target(task, rate, seeds, steps, learning_rate, merged) for merged in kinds]
            times = [time_over(each, count, rate) for count in needed]
            by_default.append(times[-1])
            said = [
                "not by all" if count is None or time is None else f"{count[0]:.0f}, {time:.2f}"
                for count, time in zip(needed, times, strict=True)
            ]
            delayed = "" if needed[-1] is None else f"{needed[-1][1]:.0f}"
            first = "not by all" if each is None else f"{each[0]:.0f}"
            print("| " + " | ".join((f"{learning_rate:g}", first, f"{rate:g}", *said, delayed)) + " |", flush=True)
    if reached := [time for time in by_default if time is not None]:
        record("deft-target", max(reached))


def time_over(each: tuple[float, float] | None, needed: tuple[float, float] | None, rate: float) -> float | None:
    """Time to the target over that of an update in each step, by what steps were measured to take."""
    if each is None or needed is None:
        return None
    steps, delayed = needed
    return (steps - delayed + delayed / THROUGHPUT[rate]) / each[0]


def print_measured(latency: float, rates: Sequence[float], seeds: int, steps: int, learning_rate: float) -> None:
    """What steps of real ranks take under each schedule, and the target at that pace."""
    from cells import measure

    size = 4 * LAYERS * LAYER_ELEMENTS
    crossing = 8 * 6 * latency + 2 * (WORKERS - 1) / WORKERS * size * 8 / BANDWIDTH
    print(
        "| coverage rate | schedule | step | updates a second | to target, steps | to target, seconds | over the best |"
    )
    print("|---|---|---|---|---|---|---|")
    gains = []
    for rate in rates:
        compute = crossing / rate / LAYERS
        plans = [f"1/dense-ring/schedule={name}/fusion=equal:buffers=8" for name in ("wait-free", *MEASURED)]
        layers = [([LAYER_ELEMENTS], compute / 3, 2 * compute / 3)] * LAYERS
        measured = measure(layers, WORKERS, latency, BANDWIDTH, plans, steps=20)[1:]
        rows = []
        for name, each in zip(MEASURED, measured, strict=True):
            merged = "mean" if each["merged"] > 1 else None
            needed, _ = steps_to_target("digits", rate, seeds, steps, learning_rate, merged) or (float("inf"), 0.0)
            rows.append((name, each["mean"], 1 / each["mean"] / each["merged"], needed, needed * each["mean"]))
        best = min(row[-1] for row in rows if not row[0].startswith("deft"))
        fastest = {
            is_deft: min(row[1] for row in rows if row[0].startswith("deft") == is_deft) for is_deft in (True, False)
        }
        gains.append(fastest[False] / fastest[True])
        for name, step, updates, needed, seconds in rows:
            row = (f"{rate:g}", name, f"{1e3 * step:.0f} ms", f"{updates:.2f}", f"{needed:.0f}", f"{seconds:.1f}")
            print("| " + " | ".join((*row, f"{seconds / best:.2f}")) + " |", flush=True)
        coverage = measured[0]["collective"] / measured[0]["compute"]
        print(f"rate {rate:g}: measured {coverage:.2f} in wait-free steps, {measured}", file=sys.stderr)
    record("deft-throughput", min(gains))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for what in ("--train", "--ablation", "--targets", "--measured"):
        parser.add_argument(what, action="store_true")
    parser.add_argument("--latency", type=float, default=5e-4, help="seconds, of what is measured (0.0005)")
    parser.add_argument("--rates", type=float, nargs="+", default=(1.0, 1.5, 2.0), help="of what is measured")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--task", choices=TASKS, default="digits", help="of --train and --targets")
    parser.add_argument("--learning-rates", type=float, nargs="+", help="of --targets")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training = (arguments.seeds, arguments.steps, arguments.learning_rate)
    if arguments.train:
        print_training(arguments.task, *training)
    elif arguments.ablation:
        print_ablation(*training)
    elif arguments.measured:
        print_measured(arguments.latency, arguments.rates, *training)
    elif arguments.targets:
        rates = arguments.learning_rates or TASKS[arguments.task].learning_rates
        print_targets(arguments.task, arguments.seeds, arguments.steps, rates)
    else:
        print_throughput()


if __name__ == "__main__":
    main()
