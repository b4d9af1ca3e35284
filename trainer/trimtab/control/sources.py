"""Which sources a job may choose among: gradients, and updates of how many local steps."""

from __future__ import annotations

from trimtab_api.catalogue import sources
from trimtab_api.catalogue.sources import OUTER_MOMENTUM, OUTER_RATE
from trimtab_api.trainingjob.communication import LocalSteps

from trimtab.control.types import OptimizerFamily


def sources_by_default(optimizer: OptimizerFamily, most: int = LocalSteps().max) -> tuple[str, ...]:
    """What a job that says nothing of local steps may choose in loops over ``session.batches``, beside gradients.

    What local steps cost was measured of the kin of Adam and of SGD; of an optimizer that is neither nobody knows.
    """
    return () if optimizer.kind == "unknown" else sources_between(1, most)


def sources_of(wanted: LocalSteps) -> tuple[str, ...]:
    """The sources that a job permits, updates with its outer step."""
    outer = f":{OUTER_RATE.name}={wanted.outer_rate}:{OUTER_MOMENTUM.name}={wanted.outer_momentum}"
    between = sources_between(wanted.min, wanted.max)
    return tuple(each if each == sources.default else sources.normalize(each + outer) for each in between)


def sources_between(fewest: int, most: int) -> tuple[str, ...]:
    """The sources with ``fewest`` to ``most`` local steps: both ends, and powers of 4 between."""
    steps = {fewest, most, *(4**power for power in range(10))}
    return tuple(f"update:steps={n}" if n else sources.default for n in sorted(steps) if fewest <= n <= most)
