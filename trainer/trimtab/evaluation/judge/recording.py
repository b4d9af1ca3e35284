"""Curves for the simulator from finished runs on loopback, which differ in their plans alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from trimtab_api.catalogue import Cost

from trimtab.evaluation.judge.recorded import Recorded
from trimtab.plan.plan import FusionPlan, Plan
from trimtab.run_files.reader import Run


def recorded_of(runs: Sequence[Run], target_loss: float) -> Recorded:
    """Return the curves of all runs; the first is dense's, whose bytes tell how large the model is."""
    dense = runs[0]
    job = dense.job["spec"]
    num_ranks = job["workers"] * job.get("processesPerWorker", 1)
    sent = median(step.num_bytes for step in dense.training_steps)
    one_element = sum(Plan.parse("dense", _FUSION).buffer_costs(_MILLION, num_ranks), Cost(0, 0)).bytes / _MILLION
    return Recorded(
        target_loss=target_loss,
        num_elements=round(sent / one_element),
        # Of the run that other work on the machine disturbed least.
        compute_seconds=min(median(step.compute_seconds for step in run.training_steps) for run in runs),
        curves={
            Plan.parse(run.name, _FUSION): tuple((each.step, each.values["loss"]) for each in run.evaluations)
            for run in runs
        },
    )


_FUSION = FusionPlan(planner="single")
_MILLION = 1_000_000
