"""A schedule of one's own: first what the next forward pass needs first. Copy it to add one: it is pure."""

from trimtab.plan.schedules import Iteration, Schedule, Send
from trimtab_api import catalogue


class Backwards(Schedule):
    """Every bucket once backward has ended, the model's first layers first."""

    name = "backwards"

    def iteration(self, t: int) -> Iteration:
        order = reversed(range(self.num_buckets))
        return Iteration(tuple(Send(bucket, t, after="backward") for bucket in order), update=t)


def register() -> None:
    meaning = "every bucket after backward, the model's first layers first"
    catalogue.schedules.add(catalogue.Schedule("backwards", meaning, "backwards:Backwards"))
