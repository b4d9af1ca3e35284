"""Sparsifiers: which k of n elements are sent."""

from trimtab_api.catalogue.row import Row

SPARSIFIERS = (
    Row(
        name="tracked",
        meaning="The largest k, by a threshold that is carried from step to step and corrected.",
        factory="trimtab.sparsify.tracked_threshold:TrackedThreshold",
    ),
    Row(name="topk", meaning="The largest k, exactly.", factory="trimtab.sparsify.topk:TopK"),
    Row(
        name="mstopk",
        meaning="About the largest k, by a search for the threshold.",
        factory="trimtab.sparsify.mstopk:MSTopK",
    ),
)
