"""What rank 0's controller says to all ranks, as every rank's session hears it; silent where there is no controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_api.netmon.view import NetworkView

from trimtab.control.client import ControlClient
from trimtab.control.messages import AdoptPlan, Message, message_of
from trimtab.control.types import StepReport, TrialReport
from trimtab.plan.plan import Plan
from trimtab.plan.profile import Profile
from trimtab.transport.group import Group
from trimtab.transport.object_collectives import broadcast_json, tell_json


class ControlMessages:
    """Rank 0 holds the controller's client; the others, and jobs without a controller, hold None."""

    def __init__(self, group: Group | None, client: ControlClient | None) -> None:
        self._group, self._client = group, client

    @property
    def view(self) -> NetworkView | None:
        """The network as this rank's controller saw it last."""
        return self._client.view if self._client else None

    @property
    def can_run_trials(self) -> bool:
        """True if this rank's controller asks for trials where they can be run."""
        return self._client is not None and self._client.can_run_trials

    @property
    def offers_rounds(self) -> bool:
        """True if this rank's controller may choose local steps by itself, in loops over ``session.batches``."""
        return self._client is not None and self._client.offers_rounds

    @property
    def is_pending(self) -> bool:
        """True if this rank has a message for all; the one thing here that the communication thread asks."""
        return self._client is not None and self._client.has_message

    def receive(self) -> Message | None:
        """Return rank 0's message on every rank, or None; all call it together."""
        assert self._group is not None
        message = self._client.poll() if self._client else None
        received = broadcast_json(self._group, None if message is None else message.to_json(), message_of)
        if self._client:
            self._client.sent()
        return received

    def plan_ahead(self) -> Callable[[], Plan | None]:
        """Begin to tell all ranks of rank 0's new plan of local steps, before the present round is exchanged.

        All call it together, and what it returns.

        Returns:
            A function that waits for the message, and returns the plan; None if rank 0 has none.
        """
        assert self._group is not None
        message = self._client.poll() if self._client else None
        of_round = message if isinstance(message, AdoptPlan) and message.plan.ends_rounds else None
        told = tell_json(self._group, None if of_round is None else of_round.to_json(), message_of)
        if self._client and of_round is not None:
            self._client.sent()

        def plan() -> Plan | None:
            received = told()
            return received.plan if isinstance(received, AdoptPlan) else None

        return plan

    def step(self, before: StepReport | None, steps_left_in_epoch: int, *, ends_round: bool) -> None:
        """Tell the controller that a training step has ended.

        Args:
            before: All that is known of the step before; None if the plan has changed since.
            steps_left_in_epoch: Steps left in the epoch; 0 where no trial can be run.
            ends_round: Whether the step was exchanged, and is no step within a round of local steps.
        """
        if self._client and ends_round:
            self._client.step(before, steps_left_in_epoch)
        elif self._client:
            self._client.in_round(steps_left_in_epoch)

    def loop_ended(self, before: StepReport | None) -> None:
        """Tell the controller that a loop's end has cut a round short; ``before`` is the round before it, or None."""
        if self._client:
            self._client.loop_ended(before)

    def trials(self, reports: list[TrialReport]) -> None:
        """Tell the controller that the trials it asked for have run, or, without ``reports``, none of them."""
        if self._client:
            self._client.trials(reports)

    def profile(self, profile: Profile | None) -> None:
        """Tell the controller of profiled steps; do nothing if ``profile`` is None."""
        if self._client and profile is not None:
            self._client.profile(profile)

    def state_dict(self) -> dict[str, Any] | None:
        """Return what this rank's controller has learned and decided, as plain JSON; None without a controller."""
        return self._client.state_dict() if self._client else None

    def load_state_dict(self, state: dict[str, Any] | None, plan: Plan) -> None:
        """Load what `state_dict` returned; a message that waits is of before, and is dropped.

        ``plan`` is what ranks follow now. The controller had another where ranks had not been told of it, or cannot
        follow it; it would take their steps for ones before its own.
        """
        if self._client and state is not None:
            self._client.load_state_dict({**state, "plan": plan.to_json()})

    def close(self) -> None:
        """Let the controller finish and write down what it has to say."""
        if self._client:
            self._client.close()


@dataclass(frozen=True)
class MessagesForAll:
    """Messages to all ranks, as the engine asks for them."""

    control: ControlMessages
    has_message: Callable[[], bool]
    """True if this rank has a message that follows the step's exchange."""

    def plan_ahead(self) -> Callable[[], Plan | None]:
        """See `ControlMessages.plan_ahead`."""
        return self.control.plan_ahead()
