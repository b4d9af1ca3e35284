"""The names that a TrainingJob, a plan and a metric share, in one place.

The trainer implements what is named here; the contracts know only the names, to refuse a wrong one before anything
starts.
"""

from __future__ import annotations

#: Collectives that send the whole gradient.
DENSE_COLLECTIVES = ("dense-ring", "dense-tree")
#: Collectives that send a selection of it (Flexible Communication, sections 3-A and 3-D).
SPARSE_COLLECTIVES = (
    "all-gather",
    "artopk-star-ring",
    "artopk-star-tree",
    "artopk-var-ring",
    "artopk-var-tree",
)
COLLECTIVES = DENSE_COLLECTIVES + SPARSE_COLLECTIVES
SPARSIFIERS = ("tracked", "topk", "mstopk")
SCHEDULES = ("wait-free",)
