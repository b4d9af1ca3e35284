"""Fusion planners by the timeline: the step times of each planner.

    python benchmarks planning/planners
    python benchmarks planning/planners --density 0.1
    python benchmarks planning/planners --measured    # steps of ranks on an emulated network; as root
    python benchmarks planning/planners --measured --cells 1 2    # two of its six cells

Models by their tensors (`shaped_models`), all-gather's closed form, 4 and 8 workers, latencies and bandwidths on a
grid. Compression takes 0.05 ms a buffer and 10 ms for 11.7 million elements, as measured of one fused pass on a core.
A minute of a core; no network, no training. ``--measured`` runs the engine's own steps in six cells, some two minutes
each, over layers that sleep for as long as they would take (`trimtab.evaluation.bench.replayed`): ``--narrowed`` times
fewer elements than the model has, and ``--batch`` times the batch, so that two cores are enough to compress for all
ranks.

Needs nothing more; --measured: root and /dev/net/tun; takes a minute; --measured: two minutes a cell.
"""

from __future__ import annotations

import argparse
import random
import sys
from itertools import accumulate, pairwise, product
from math import exp, log
from statistics import mean, median

from results import record
from shaped_models import MODELS, gpt, resnet18, vgg16
from trimtab.plan.fusion import plan_of
from trimtab.plan.fusion.base import BufferCosts
from trimtab.plan.fusion.run_times import RunTimes
from trimtab_api.catalogue import BYTES_PER_ELEMENT, collective_cost

LATENCIES = (1e-4, 5e-4, 1e-3, 5e-3, 2e-2)
BANDWIDTHS = (100e6, 200e6, 1e9, 10e9)
"""Bits a second."""
WORKERS = (4, 8)
CALL, ELEMENT = 5e-5, 10e-3 / 11.7e6
PLANNERS = {
    "WFBP": "none",
    "fixed": "fixed",
    "single": "single",
    "MG-WFBP": "mg-wfbp",
    "OMGS": "omgs",
    "Cupcake": "cupcake",
    "autotuned": "autotuned",
    "SAF-Inter": "safusion:workers=inter",
    "SAF, tail=paper": "safusion:tail=paper",
    "SAF-(Inter+Intra)": "safusion",
    "optimal": "optimal",
}
SCHEDULED = {
    "OMGS, priority": "omgs/schedule=priority",
    "autotuned, priority": "autotuned/schedule=priority",
    "optimal, us-byte": "optimal/schedule=us-byte",
}
"""What may be measured as well: means that arrive in the next forward pass."""
MEASURED_MODELS = (
    resnet18,
    lambda: vgg16(side=32, batch=16, width=512, classes=10),
    lambda: gpt(layers=6, width=384, vocabulary=8000, batch=2),
)
MEASURED_NETWORKS = ((4, 5e-3, 1e9), (8, 2e-3, 200e6))
"""Workers, latency, bits a second."""
MEASURED_CELLS = tuple(product(MEASURED_MODELS, MEASURED_NETWORKS))
"""``--cells`` counts them from 1."""
FIRST_PLANS = ("fusion=equal:buffers=4", "fusion=single", "fusion=single/schedule=after-backward")
"""What runs before planners are asked, as a controller has seen a plan or two: the last is what hides nothing."""
NAIVE_BUFFERS = 8
"""SAF(Naive) puts this share of the compressed bytes into a buffer, as SAF-Inter does of the tensors."""


def naive_seconds(times, exchange, workers):
    """SAF(Naive), of which there is no more than this model: each rank closes a buffer at so many compressed elements.

    Selections are off by what DGC's threshold allows, 0.8 to 1.3 of what they should be, so cuts differ from rank to
    rank. The i-th exchange begins when every rank has its i-th buffer, and lasts as long as the largest of them takes.
    """
    rng = random.Random(1)
    sizes = [last - first for first, last in pairwise(times.offsets)]
    capacity = sum(sizes) / NAIVE_BUFFERS
    filled: list[list[float]] = []
    held: list[list[float]] = []
    for _ in range(workers):
        compressed, inside, ends, amounts = 0.0, 0.0, [], []
        for tensor, size in enumerate(sizes):
            compressed = max(compressed, times.ready[tensor]) + times.compress(tensor, tensor + 1)
            inside += size * rng.uniform(0.8, 1.3)
            if inside >= capacity or tensor == len(sizes) - 1:
                ends.append(compressed)
                amounts.append(inside)
                inside = 0.0
        filled.append(ends)
        held.append(amounts)
    sent = 0.0
    for number in range(max(map(len, filled))):
        begins = max(ends[min(number, len(ends) - 1)] for ends in filled)
        largest = max(amounts[number] for amounts in held if number < len(amounts))
        sent = max(sent, begins) + exchange(largest)
    return max(sent, times.compute_seconds)


def cells(density):
    """For each model, number of workers and network: the step's seconds by planner, and what of WFBP is latency."""
    for shape, workers, latency, bandwidth in product(MODELS, WORKERS, LATENCIES, BANDWIDTHS):
        model = shape()

        def exchange(size, workers=workers, latency=latency, bandwidth=bandwidth):
            cost = collective_cost("all-gather", BYTES_PER_ELEMENT * size, density, workers)
            return cost.seconds(latency, 8 / bandwidth)

        costs = BufferCosts(lambda size: CALL + ELEMENT * size, exchange)
        times = RunTimes(model.profile, model.tensor_sizes, costs)
        tensor = {offset: index for index, offset in enumerate(times.offsets)}
        seconds, buffers = {}, {}
        for name, planner in PLANNERS.items():
            cuts = plan_of(planner, model.tensor_sizes, profile=model.profile, costs=costs).cuts
            seconds[name] = times.step_seconds([tensor[cut] for cut in cuts])
            buffers[name] = len(cuts)
        seconds["SAF(Naive)"] = naive_seconds(times, exchange, workers)
        startups = len(times) * exchange(0)
        exchanges = sum(exchange(size) for size in model.tensor_sizes)
        is_startup_bound = startups > exchanges - startups + times.compute_seconds
        yield model.name, workers, latency, bandwidth, seconds, buffers, times.compute_seconds, is_startup_bound


def show_measured(arguments):
    """What the engine's steps take under each planner, the choice by prediction, and what it hides."""
    from cells import measure

    names = arguments.planners
    prefix = f"{arguments.density:g}/all-gather/sparsifier={arguments.sparsifier}/"
    texts = [f"fusion={(PLANNERS | SCHEDULED)[name]}" for name in names]
    plans = [prefix + plan for plan in (*FIRST_PLANS, *texts)]
    print("| model | workers | latency | bandwidth | computing | after backward | single |", " | ".join(names), end="")
    print(" | choice, over best | exposed | waited | SAFusion over WFBP", end="")
    print(" | predicted within 10% | off by, median and worst | re-planning |")
    print("|" + "---|" * (len(names) + 14))
    choices, differences = [], []
    for number in arguments.cells:
        shape, (workers, latency, bandwidth) = MEASURED_CELLS[number - 1]
        model = shape().narrowed(arguments.narrowed).with_batch(arguments.batch)
        told = measure(
            model.layers, workers, latency, bandwidth, plans, num_known=len(FIRST_PLANS), steps=arguments.steps
        )
        planned = dict(zip(names, told[len(FIRST_PLANS) :], strict=True)) | {"single": told[1]}
        compute, after = min(each["compute"] for each in told), told[2]["step"]
        predicted = {name: each["predicted"] for name, each in planned.items() if each["predicted"]}
        choice = min(predicted, key=predicted.get)
        best = min(planned, key=lambda name: planned[name]["step"])
        off = sorted(abs(predicted[name] / planned[name]["step"] - 1) for name in predicted)
        choices.append(planned[choice]["step"] / planned[best]["step"])
        differences += off
        steps = " | ".join(f"{1e3 * planned[name]['step']:.0f}" for name in ("single", *names))
        chosen = planned[choice]["step"]
        cell = (
            f"{workers} | {1e3 * latency:g} ms | {bandwidth / 1e6:g} Mbit/s | {1e3 * compute:.0f} | {1e3 * after:.0f}"
        )
        judged = (
            f"{choice}, {chosen / planned[best]['step']:.2f} ({best})",
            f"{(chosen - compute) / (after - compute):.0%}",
            f"{waited(planned[choice]) / waited(told[2]):.0%}",
            f"{planned['WFBP']['step'] / planned['SAF-(Inter+Intra)']['step']:.2f}",
            f"{sum(each <= 0.1 for each in off)} of {len(off)}",
            f"{median(off):.0%}, {max(off):.0%}",
            f"{1e3 * sum(each['planning'] for each in planned.values()):.0f} ms",
        )
        print(f"| {model.name} | {cell} | {steps} | {' | '.join(judged)} |", flush=True)
        for name, each in (planned | {"after backward": told[2]}).items():
            known = ", ".join(f"{key} {1e3 * each[key]:.0f}" for key in ("known", "compute", "compress", "collective"))
            known += f", {1e3 * each['processor']['all']:.0f} of a core"
            print(f"{name}: {each['buffers']} buffers, step {1e3 * each['step']:.0f}, {known}", file=sys.stderr)
    record("planner-choice", max(choices))
    record("planner-predicted", 100 * mean(float(each <= 0.1) for each in differences))


def waited(told):
    """What of a plan's step the training thread waited for the exchange."""
    return told["step"] - told["compute"]


def geometric_mean(ratios):
    return exp(mean(map(log, ratios)))


def show(made):
    names = [*(name for name in PLANNERS if name != "optimal"), "SAF(Naive)"]
    print("Step time over that of `optimal`: geometric mean, worst, and the share of cells within 1.10.\n")
    print("| planner | mean | worst | within 1.10 | buffers, median |")
    print("|---|---|---|---|---|")
    for name in names:
        ratios = [cell[4][name] / cell[4]["optimal"] for cell in made]
        if name == "SAF-(Inter+Intra)":
            record("safusion", 100 * sum(ratio <= 1.1 for ratio in ratios) / len(ratios))
        count = f"{median(cell[5][name] for cell in made):g}" if name in PLANNERS else ""
        within = sum(ratio <= 1.1 for ratio in ratios) / len(ratios)
        print(f"| {name} | {geometric_mean(ratios):.2f} | {max(ratios):.2f} | {within:.0%} | {count} |")
    bound = [cell[4]["WFBP"] / cell[4]["SAF-(Inter+Intra)"] for cell in made if cell[7]]
    best = [cell[4]["WFBP"] / cell[4]["optimal"] for cell in made if cell[7]]
    print(f"\nCells where WFBP's startups alone take longer than all else, computing and bytes: {len(bound)}.")
    print(f"SAFusion over WFBP there: least {min(bound):.2f}, median {median(bound):.2f} times as fast;")
    print(
        f"at least 1.5 times in {sum(each >= 1.5 for each in bound)}, `optimal` in {sum(each >= 1.5 for each in best)}."
    )
    for slower, faster in pairwise(("WFBP", "SAF(Naive)", "SAF-Inter", "SAF-(Inter+Intra)")):
        ratios = [cell[4][slower] / cell[4][faster] for cell in made]
        better = sum(ratio > 1.001 for ratio in ratios) / len(ratios)
        span = f"at most {max(ratios):.2f}, at least {min(ratios):.2f}; faster in {better:.0%} of cells."
        print(f"{faster} over {slower}: {geometric_mean(ratios):.2f} times as fast on average, {span}")
    print("\nMilliseconds a step, 4 workers:\n")
    print("| model | latency | bandwidth | computing |", " | ".join([*PLANNERS, "SAF(Naive)"]), "|")
    print("|" + "---|" * (len(PLANNERS) + 5))
    for model, workers, latency, bandwidth, seconds, _, compute, _ in made:
        if workers == 4 and latency in (5e-4, 5e-3, 2e-2) and bandwidth in (200e6, 1e9):
            figures = " | ".join(f"{1e3 * seconds[name]:.0f}" for name in [*PLANNERS, "SAF(Naive)"])
            print(f"| {model} | {1e3 * latency:g} ms | {bandwidth / 1e6:g} Mbit/s | {1e3 * compute:.0f} | {figures} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument(
        "--worst", action="store_true", help="also print the cells in which SAFusion is the furthest off"
    )
    parser.add_argument("--measured", action="store_true", help="the engine's steps on an emulated network")
    every_cell = range(1, len(MEASURED_CELLS) + 1)
    parser.add_argument("--cells", type=int, nargs="+", choices=every_cell, default=every_cell, help="of --measured")
    parser.add_argument("--batch", type=int, default=4, help="so many times the model's, in --measured")
    parser.add_argument("--narrowed", type=int, default=1, help="so many times fewer elements, in --measured")
    parser.add_argument("--sparsifier", default="tracked", help="of --measured")
    others = [name for name in PLANNERS if name not in ("single", "SAF, tail=paper", "SAF-Inter")]
    parser.add_argument(
        "--planners", nargs="+", choices=(*PLANNERS, *SCHEDULED), default=others, help="beside single, in --measured"
    )
    parser.add_argument("--steps", type=int, default=12, help="counted of each plan, in --measured")
    arguments = parser.parse_args()
    if arguments.measured:
        show_measured(arguments)
        return
    made = list(cells(arguments.density))
    print(f"Density {arguments.density:g}, {len(made)} cells.", *(_summary(shape()) for shape in MODELS), sep="\n")
    print()
    show(made)
    if arguments.worst:
        print()
        for cell in sorted(made, key=lambda cell: -cell[4]["SAF-(Inter+Intra)"] / cell[4]["optimal"])[:25]:
            seconds = {name: round(1e3 * value, 1) for name, value in cell[4].items()}
            print(cell[0], cell[1], cell[2], cell[3] / 1e6, seconds, cell[5]["SAF-(Inter+Intra)"], cell[5]["optimal"])


def _summary(model):
    stops = list(accumulate(model.sizes))
    return f"{model.name}: {len(model.sizes)} tensors, {stops[-1] / 1e6:.2f} million elements, batch {model.batch}."


if __name__ == "__main__":
    main()
