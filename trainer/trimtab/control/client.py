"""Rank 0's end of the control loop: runs the controller beside training and turns its actions into messages.

The controller is asked on a thread of its own (a decision takes some 20 ms); what it answers is announced by the next
step's vote and reaches every rank by a broadcast, so that all adopt a plan at the same step.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trimtab_api.netmon import client as netmon_client
from trimtab_api.netmon.view import NetworkView
from trimtab_api.rpc.certificates import Certificates

from trimtab.control.controller import Controller
from trimtab.control.messages import AdoptPlan, Mailbox, Message, TryPlans
from trimtab.control.monitors.network_alarm import PATIENCE_SECONDS, NetworkAlarm, network_line, problem_of
from trimtab.control.types import RunTrials, StepReport, SwitchPlan, TrialReport
from trimtab.plan.profile import Profile

#: Seconds to wait for the monitors' first figures before training starts without them.
FIRST_MEASUREMENT_SECONDS = 20.0
#: Seconds the first decision may take, and what is left of pymoo's import before it.
FIRST_DECISION_SECONDS = 60.0
#: Seconds for which the control thread may hold the interpreter while training waits for it. An operation of training
#: lets go of it each time that it begins; by Python's own 5 ms a decision of 100 ms of Python would run through, and
#: all ranks wait for this one.
GIL_SWITCH_INTERVAL_SECONDS = 5e-4
#: Seconds a measurement asked for may take.
PROBE_TIMEOUT_SECONDS = 10.0


@contextlib.contextmanager
def _giving_way() -> Iterator[None]:
    """Let other threads have the interpreter soon, for as long as the control thread works."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, GIL_SWITCH_INTERVAL_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class ControlClient:
    """The session's client of the controller: reports go in, and the answer waits until the session announces it.

    All of the controller's methods are called on the control thread, which leaves its answers in a mailbox. All of the
    client's are called on the training thread, but for `has_message`, which the communication thread reads.
    """

    def __init__(
        self,
        controller: Controller,
        monitor: str | None,
        log: Callable[[dict[str, Any]], None],
        now: Callable[[], float],
        certificates: Certificates | None = None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """Ask nothing before `start`.

        Args:
            controller: Decides.
            monitor: The network monitor's ``HOST:PORT``; None if the network is not measured.
            log: Takes the lines of ``decisions.jsonl``.
            now: The run's clock, in seconds.
            certificates: To call the monitor by.
            warn: Takes a sentence for the user: that the network is not measured, that it is again, or that the plan
                went wrong. Called on the control thread too.
        """
        self._controller, self._monitor, self._certificates = controller, monitor, certificates
        self._log = log
        self._now = now
        self._control = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trimtab-control")
        self._prober = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trimtab-probe")
        self._asked: Future[None] | None = None
        """The question under way, or the last one whose end `poll` has not seen."""
        self._answers: Mailbox[Message] = Mailbox()
        self._polled: Message | None = None
        """The message that the last `poll` returned."""
        self._probe: Future[Any] | None = None
        self._step_ended_at = now()
        self._failure: BaseException | None = None
        self._has_news = False
        """True if the monitor has spoken since the controller was asked last."""
        self.view: NetworkView | None = None
        self._watch: netmon_client.NetworkWatch | None = None
        self._warn, self._alarm = warn, NetworkAlarm()

    def start(self, say: Callable[[str], None] = lambda doing: None, patience: float = math.inf) -> None:
        """Wait for the network's first figures and for the first plan, each for a bounded time.

        Args:
            say: Is told what is done meanwhile.
            patience: Seconds that the other ranks wait for this one. At most 3/4 of them are spent.
        """
        if self._monitor is not None:
            self._tell(self._controller.preload)  # beside the wait: where figures come late, no decision waits for it
            self._watch = netmon_client.watch(self._monitor, self._on_change, self._certificates)
            say("measuring the network")
            view = self._watch.wait_until_measured(min(FIRST_MEASUREMENT_SECONDS, patience / 4))
            self._check_network(view, patience=0.0)
        say("choosing the first plan")
        # Where dense steps would take seconds, the first plan is chosen before the first step.
        self._asked = self._control.submit(self._ask, 0)
        with contextlib.suppress(TimeoutError):  # it is announced by a later step then
            self._asked.exception(min(FIRST_DECISION_SECONDS, patience / 2))

    @property
    def can_run_trials(self) -> bool:
        """True if the controller asks for trials where they can be run."""
        return self._controller.can_run_trials

    @property
    def offers_rounds(self) -> bool:
        """True if local steps, which the job has not asked for, may be chosen in loops over ``session.batches``."""
        return self._controller.offers_rounds

    @property
    def has_message(self) -> bool:
        """True if there is a message to announce; may be read on any thread."""
        return self._answers.look() is not None

    def poll(self) -> Message | None:
        """Return the message to announce, if any.

        Raises:
            BaseException: What went wrong on the control thread.
        """
        if self._failure is not None:
            raise self._failure
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            asked.result()
        self._polled = self._answers.look()
        return self._polled

    def sent(self) -> None:
        """Remove the message that the last `poll` has returned, since it was broadcast."""
        self._answers.take(self._polled)

    def step(self, before: StepReport | None, steps_left_in_epoch: int) -> None:
        """Take the end of a step: report the one before, and ask what to do unless an answer is on its way.

        Args:
            before: All that is known of the step before; None if the plan has changed since: nothing is asked then.
            steps_left_in_epoch: Steps that a trial must not exceed.
        """
        ended_at, self._step_ended_at = self._step_ended_at, self._now()
        if self._watch is not None:
            self._check_network(self._watch.view)
        if before is None:
            return
        if self.poll() is None and self._asked is None:
            self._asked = self._control.submit(self._observe_and_ask, before, ended_at, steps_left_in_epoch)
        else:
            self._tell(self._controller.observe_step, before, ended_at)

    def in_round(self, steps_left_in_epoch: int) -> None:
        """Ask what to do after a step within a round of local steps, if the network was measured since the last time.

        The exchange that ends the round is the costliest way to learn of a change.

        Args:
            steps_left_in_epoch: Steps that a trial must not exceed.
        """
        if self._has_news and self.poll() is None and self._asked is None:
            self._asked = self._control.submit(self._ask, steps_left_in_epoch)

    def loop_ended(self, before: StepReport | None) -> None:
        """Ask what to do after a loop over batches has ended in mid-round.

        If rounds are as long as the script's loops, nothing else would ever ask.

        Args:
            before: The report of the round before the one that was cut short; None if there was none.
        """
        if before is not None:
            self.step(before, 0)
        elif self.poll() is None and self._asked is None:
            self._asked = self._control.submit(self._ask, 0)

    def trials(self, reports: list[TrialReport]) -> None:
        """Report what the trials have measured."""
        self._tell(self._controller.observe_trials, reports, self._now())

    def profile(self, profile: Profile) -> None:
        """Report what profiled steps have measured."""
        self._tell(self._controller.observe_profile, profile, self._now())

    def state_dict(self) -> dict[str, Any]:
        """Return what the controller has learned and decided, as plain JSON."""
        return self._control.submit(self._controller.state_dict).result()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`; what the controller has asked for meanwhile is dropped."""
        self._control.submit(self._controller.load_state_dict, state).result()
        self._asked = None
        self._answers.clear()

    def close(self) -> None:
        """Finish what is queued and write the last of the log."""
        if self._watch is not None:
            self._watch.close()
        self._prober.shutdown(wait=False, cancel_futures=True)
        self._control.shutdown(wait=True)

    def _on_change(self, view: NetworkView) -> None:
        """Take a new revision from the monitor, on the watch's thread; ignore it if it measures nothing."""
        if not view.is_measured:
            return
        self.view = view
        self._tell(self._controller.observe_network, view, self._now())
        self._has_news = True

    def _check_network(self, view: NetworkView, patience: float = PATIENCE_SECONDS) -> None:
        """Say and write down that the network is not measured, or that it is again."""
        problem = self._alarm.look(problem_of(view), self._now(), patience)
        if problem is None:
            return
        if problem:
            self._warn(f"the network is not measured, so the plan does not adapt to it: {problem}")
        else:
            self._warn("the network is measured now")
        self._tell(self._log, network_line(problem, self._now()))

    def _tell(self, observe: Callable[..., None], *what: Any) -> None:
        """Tell the controller something, and write down what it makes of it."""
        with contextlib.suppress(RuntimeError):  # the control thread has been closed, or the script has ended
            self._control.submit(self._observe, observe, *what).add_done_callback(self._keep_failure)

    @_giving_way()
    def _observe(self, observe: Callable[..., None], *what: Any) -> None:
        observe(*what)
        self._drain()

    def _keep_failure(self, told: Future[None]) -> None:
        self._failure = self._failure or told.exception()

    @_giving_way()
    def _observe_and_ask(self, report: StepReport, now: float, steps_left: int) -> None:
        self._controller.observe_step(report, now)
        if (warning := self._controller.take_warning()) is not None:
            self._warn(warning)
        self._ask(steps_left)

    @_giving_way()
    def _ask(self, steps_left: int) -> None:
        self._has_news = False
        begun = time.thread_time()  # not the clock: training runs beside it, and takes the processors too
        action = self._controller.next_action(self._now(), steps_left)
        solving_seconds = time.thread_time() - begun
        if self._drain(solving_seconds=solving_seconds):
            self._controller.trial_budget.decided(solving_seconds)
        if self._probe is not None and self._probe.done():
            if self._probe.result() is None:
                self._controller.drift.refused(self._now())
            else:
                self._controller.drift.measured()
            self._probe = None
        if self._watch is not None and self._probe is None and self._controller.drift.asks_to_measure(self._now()):
            self._probe = self._prober.submit(
                self._watch.measure_now,
                "the times of collectives no longer match the measured network",
                PROBE_TIMEOUT_SECONDS,
            )
        if isinstance(action, SwitchPlan):
            self._answers.put(AdoptPlan(action.plan))
        elif isinstance(action, RunTrials):
            self._answers.put(TryPlans(action.plans, action.iterations))

    def _drain(self, **of_decision: float) -> bool:
        """Write the controller's log, and return whether it holds a decision."""
        has_decided = False
        for line in self._controller.log.drain():
            is_decision = line["record"] == "decision"
            self._log(line | of_decision if is_decision else line)
            has_decided |= is_decision
        return has_decided
