"""OMGS-SGD (Shi et al.: INFOCOM 2020): merged gradients where sparsification takes time as well."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fusion.base import BufferCosts
from trimtab.fusion.merging import merged_begins
from trimtab.fusion.run_times import RunTimes
from trimtab.plan.profile import Profile


def merged_sparsification(profile: Profile | None, tensor_sizes: Sequence[int], costs: BufferCosts) -> tuple[int, ...]:
    """A buffer takes the next gradient where the exchange that this saves is longer than its own is put off.

    The paper sparsifies between two layers' backward passes; here, as the engine does, beside them.
    """
    times = RunTimes(profile, tensor_sizes, costs)
    return times.cuts(merged_begins(times, weighs_compression=True))
