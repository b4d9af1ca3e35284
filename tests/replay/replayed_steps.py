"""One rank's part of measured steps: a replayed model under one plan after another, in one session.

    python -m replayed_steps TASK.json

The task: ``layers`` (forward order: sizes, forward, backward), the network's ``alpha`` [s] and ``beta`` [s/byte], and
``plans``, each the name of a plan and a number of steps. Planners are asked as the controller asks them, with what was
learned until then. Rank 0 prints for each plan what its steps took, what was predicted of them once ``num_known`` plans
had run (null for those), and what is predicted at the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from trimtab.control.learning import Learner
from trimtab.control.messages import AdoptPlan
from trimtab.control.monitors.gain import GainWatch
from trimtab.control.monitors.network import Network
from trimtab.control.planning import FusionPlanning
from trimtab.control.types import ModelFacts
from trimtab.evaluation.bench.replayed import LayerTimes, Replayed
from trimtab.plan.fusion import cut
from trimtab.plan.plan import Plan
from trimtab.session.session import Session
from trimtab.transport import extra_links as extra_links
from trimtab.transport.group import Group

SETTLING = 3
"""Steps under a plan that are not counted."""


class Chooser:
    """Stands where rank 0's controller stands: learns as it does, and adopts one plan after another."""

    view = None
    can_run_trials = False
    offers_rounds = False

    def __init__(self, task, facts):
        self.learner = Learner(facts)
        self.network = Network(0, task["alpha"], 1 / task["beta"])
        self.planning = FusionPlanning(self.learner.predictor, facts, (0.1, 0.05, 0.01, 0.001))
        self.pending_message = None
        self.seconds = []
        """Of each step under the present plan, and what of it was computing."""
        self.lines = []
        self.gain = GainWatch(0.1, 20)

    has_message = property(lambda self: self.pending_message is not None)

    def poll(self):
        return self.pending_message

    def sent(self):
        self.pending_message = None

    def step(self, before, _):
        if before is None:
            return
        self.learner.steps.add(before, time.monotonic())
        if len(self.seconds) >= SETTLING:
            self.learner.exchange(before, self.network)
            self.learner.compression(before, self.gain)
        self.seconds.append(before)

    def profile(self, profile):
        self.learner.predictor.observe_profile(profile)

    def close(self):
        pass

    def planned(self, text):
        """The plan with its planners' cuts, what was predicted of it, and what planning took."""
        began = time.process_time()
        self.planning.renew(self.network.latency, self.network.beta)
        named = Plan.parse(text)
        plan = self.planning.plan(
            named.ratio, named.collective, named.sparsifier, named.fusion.planner, named.schedule, named.source
        )
        return plan, self.predicted(plan), time.process_time() - began

    def predicted(self, plan):
        return self.learner.predictor.predict(plan, self.network.latency, self.network.beta)


class Traces:
    """Takes what a recorder takes, and keeps the traces."""

    def __init__(self):
        self.lines = []

    def traces(self, lines):
        self.lines += lines

    def __getattr__(self, name):
        return lambda *_, **__: None


def processor_seconds():
    """What each thread of this process has had of the processors, by name."""
    used = {}
    for thread in threading.enumerate():
        fields = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
        used[thread.name] = int(fields[0]) / 1e9
    return used | {"all": time.process_time()}


def joined():
    """This rank's group, as a job's ranks join theirs."""
    dist.init_process_group("gloo")
    group = Group.connect()
    extra_links.join(group, None, b"", deadline=60.0)
    return group


def main():
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    group = joined()
    layers = [LayerTimes(tuple(sizes), forward, backward) for sizes, forward, backward in task["layers"]]
    network = Replayed(layers, seed=group.rank)
    sizes = tuple(parameter.numel() for parameter in reversed(list(network.parameters())))
    facts = ModelFacts(sum(sizes), sizes, group.size, shares_interface=group.can_open_extra_links)
    chooser = Chooser(task, facts) if group.rank == 0 else None
    recorder = Traces()
    first = cut(Plan.parse(task["plans"][0]["plan"]), sizes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    session = Session(network, optimizer, group=group, plan=first, recorder=recorder, control_client=chooser)
    inputs = torch.zeros(1, requires_grad=True)

    def step():
        network(inputs).sum().backward()
        session.step()

    results, predicted = [], [0.0]
    for number, asked in enumerate(task["plans"]):
        plan, planning = first, 0.0
        if chooser is not None and number == task["num_known"]:
            predicted = [chooser.planned(each["plan"])[1].step_seconds for each in task["plans"]]
        if chooser is not None and number > 0:
            plan, _, planning = chooser.planned(asked["plan"])
            chooser.pending_message = AdoptPlan(plan)
        if number > 0:
            step()  # announces the plan, and adopts it
        if chooser is not None:
            chooser.seconds.clear()
        recorder.lines.clear()
        before = processor_seconds()
        for number_of_step in range(SETTLING + asked["steps"] + 1):
            if number_of_step == SETTLING:
                began = time.perf_counter()
            step()
        mean = (time.perf_counter() - began) / (asked["steps"] + 1)
        if chooser is not None:
            counted = chooser.seconds[SETTLING:]
            used = {
                name: (seconds - before.get(name, 0.0)) / (SETTLING + asked["steps"] + 1)
                for name, seconds in processor_seconds().items()
            }
            results.append(
                {
                    "plan": asked["plan"],
                    "buffers": len(plan.fusion.cuts),
                    "merged": 1.0 if plan.timetable is None else plan.timetable.iterations_per_update,
                    "predicted": predicted[number] if number >= task["num_known"] else None,
                    "planning": planning,
                    **{
                        name: median(getattr(each, f"{name}_seconds") for each in counted)
                        for name in ("step", "compute", "compress", "collective")
                    },
                    # What merges updates has no median step.
                    "mean": mean,
                    "processor": used,
                    "trace": recorder.lines[-1:] if task.get("trace") else [],
                }
            )
    # At the end all is known that a controller would know: what it would say of each plan then.
    if chooser is not None:
        for result in results:
            _, prediction, _ = chooser.planned(result["plan"])
            result["known"] = prediction.step_seconds
        print(json.dumps(results), flush=True)
    session.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
