"""Lines of a run as trainers write them: a step and a decision."""

from __future__ import annotations

STEP = {
    "step": 0,
    "time": 0.5,
    "loss": 2.0,
    "step_seconds": 0.5,
    "compute_seconds": 0.3,
    "forward_seconds": 0.08,
    "backward_seconds": 0.15,
    "optimizer_seconds": 0.05,
    "compress_seconds": 0.05,
    "collective_seconds": 0.25,
    "bytes": 100,
    "messages": 4,
    "plan": "0.01/all-gather/sparsifier=topk",
    "plan_version": 2,
    "gain": 0.4,
    "finite": True,
    "last_rank": 1,
    "late_seconds": 0.02,
    "achieved_ratio": 0.011,
    "residual_norm": 3.5,
    "trial": False,
}


DECISION = {
    "record": "decision",
    "id": 1,
    "step": 4,
    "time": 2.0,
    "reason": "it is faster",
    "previous": {"name": "dense-ring"},
    "adopted": {"name": "0.01/all-gather"},
    "pareto": [],
    "trigger": "network",
    "changed": True,
    "predicted_seconds": 0.2,
    "solving_seconds": 0.01,
    "inputs": {"dense_step_seconds": 0.5, "compute_seconds": 0.125},
}
