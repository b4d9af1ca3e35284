"""Schedules: when buffers are sent."""

from trimtab_api.catalogue.row import Row

SCHEDULES = (
    Row(
        name="wait-free",
        meaning="Each buffer as soon as backward has filled it.",
        factory="trimtab.schedule.wait_free:WaitFree",
    ),
    Row(
        name="after-backward",
        meaning="All buffers once backward has ended; the baseline.",
        factory="trimtab.schedule.after_backward:AfterBackward",
    ),
)
