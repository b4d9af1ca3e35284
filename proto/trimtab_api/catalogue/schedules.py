"""The schedules: when buckets are sent."""

from __future__ import annotations

from trimtab_api.catalogue.options import MOST_ELEMENTS, Option, one_of, whole_number
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Schedule

#: Parts of a gradient that cross at the same time, each over connections of its own.
MOST_CREDIT = 8

#: Said of a job file, and of settings.
OVERLAP_IS_STATIC = (
    "is not chosen by an Adaptive policy, whose law of progress does not know what a round's delay costs; leave it out,"
    " or write a Static plan of source=update"
)

_PARTITION = Option(
    "partition", whole_number(0, MOST_ELEMENTS), "most elements of a part; 0: what makes the step shortest", default=0
)
_CREDIT = Option(
    "credit",
    whole_number(0, MOST_CREDIT),
    "most parts that cross at the same time; 0: what makes the step shortest",
    default=0,
)

schedules: Registry[Schedule] = Registry(
    "schedule",
    Schedule("wait-free", "every bucket as soon as backward has filled it", "trimtab.plan.schedules.simple:WaitFree"),
    Schedule(
        "after-backward",
        "every bucket once backward has ended",
        "trimtab.plan.schedules.simple:AfterBackward",
        awaits_backward=True,
    ),
    Schedule(
        "priority",
        "in parts, what the next forward pass needs first before all that is complete (ByteScheduler, P3)",
        "trimtab.papers.bytescheduler.priority:plan_priority",
        options=(_PARTITION, _CREDIT),
        is_planned=True,
    ),
    Schedule(
        "us-byte",
        "in unequal parts, in the order that makes the step shortest (US-Byte)",
        "trimtab.papers.us_byte.us_byte:plan_us_byte",
        options=(_PARTITION,),
        is_planned=True,
    ),
    Schedule(
        "deft",
        "updates delayed and merged until exchanges hide behind computation (DeFT)",
        "trimtab.papers.deft.deft:plan_deft",
        options=(
            Option("partition", whole_number(1, MOST_ELEMENTS), "most elements of a bucket", default=6_500_000),
            Option(
                "preserver", one_of("on", "off"), "whether the expected loss bounds how much is merged", default="on"
            ),
            Option(
                "merged",
                one_of("auto", "mean", "sum"),
                "what an update takes of its iterations: the mean, as one larger batch would, or the sum;"
                " auto: the sum, and none is delayed before the loss was seen to fall as its gradients promise",
                default="auto",
            ),
        ),
        delays_updates=True,
        is_planned=True,
    ),
    Schedule(
        "overlap",
        "updates of a round of local steps while the next round computes, one round late (eager DiLoCo)",
        "trimtab.plan.schedules.simple:Overlap",
        delays_updates=True,
        overlaps_rounds=True,
    ),
)
