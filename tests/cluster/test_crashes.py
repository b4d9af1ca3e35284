"""Operators that are killed, an API server that goes away, a lease that is stolen: jobs end as they should."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest
from control_plane import ControlPlane
from programs import Program, wait_until
from trimtab_api.names import attempt_name
from trimtab_operator.kube.api import RefusedError, Unreachable
from trimtab_operator.kube.election import LEASE_SECONDS
from trimtab_operator.kube.resources import JOBS, LEASES, PODS, TRAINING_JOBS, controller_uid
from trimtab_operator.main import LOST_LEADERSHIP
from workbench import Operators, Workbench, connect

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(900)]

#: Seconds in which another operator must have taken over.
FAILOVER_SECONDS = 20.0
#: What becomes of each attempt of a job, by the fate its name tells; then how it ends, and after how many restarts.
FATES = {
    "well": (["succeed"], "Succeeded", 0),
    "again": (["fail", "succeed"], "Succeeded", 1),
    "drained": (["disrupt", "disrupt", "succeed"], "Succeeded", 2),
    "badly": (["fail", "fail"], "Failed", 1),
    "gone": (["run"], None, None),
}


@pytest.fixture
def operators(own_control_plane, tmp_path):
    running = Operators(own_control_plane, tmp_path)
    yield running
    running.stop()


@pytest.fixture
def bench(own_control_plane):
    return Workbench(own_control_plane, connect(own_control_plane), "crashes")


def leader(bench: Workbench) -> str:
    lease = bench.api.get(LEASES, "default", "trimtab-operator")
    return (lease or {}).get("spec", {}).get("holderIdentity") or ""


def test_another_takes_over_from_a_leader_that_was_killed(bench, operators):
    first = operators.start()
    wait_until(lambda: leader(bench), "the first leads")
    operators.start()
    first.kill()
    bench.create("digits", workers=1)
    wait_until(lambda: bench.child("digits"), "the second makes the Job", FAILOVER_SECONDS)


@pytest.mark.full
def test_another_takes_over_at_once_from_a_leader_that_was_told_to_stop(bench, operators):
    first = operators.start()
    wait_until(lambda: leader(bench), "the first leads")
    operators.start()
    assert first.stop() == 0
    bench.create("digits", workers=1)
    wait_until(lambda: bench.child("digits"), "the second makes the Job", 8.0)


@pytest.mark.full
def test_a_leader_whose_lease_is_stolen_ends(bench, operators):
    program = operators.start()
    wait_until(lambda: leader(bench), "it leads")
    thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
    bench.api.merge(LEASES, "default", "trimtab-operator", thief)
    wait_until(lambda: not program.is_running, "it ends", FAILOVER_SECONDS)
    assert program.process.returncode == LOST_LEADERSHIP


def test_a_leader_that_cannot_renew_its_lease_ends_before_another_may_lead(bench, operators, own_control_plane):
    program = operators.start()
    wait_until(lambda: leader(bench), "it leads")
    own_control_plane.programs["kube-apiserver"].process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: not program.is_running, "it ends", LEASE_SECONDS)
    finally:
        own_control_plane.programs["kube-apiserver"].process.send_signal(signal.SIGCONT)
    assert program.process.returncode == LOST_LEADERSHIP


class Player(threading.Thread):
    """Plays the kubelet for every pod there is, by the fate of its job, until told to stop."""

    def __init__(self, bench: Workbench) -> None:
        super().__init__(daemon=True)
        self._bench = bench
        self.stopped = threading.Event()
        self.twins: list[str] = []
        """Live pods of one worker of two Jobs, each time that they were seen."""
        self.doubled: set[str] = set()
        """Jobs that the Job controller made two pods for one worker of: it deletes one, and the attempt with it."""

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            try:
                self._play()
            except (RefusedError, *Unreachable):
                continue  # the API server is away; it comes back

    def _play(self) -> None:
        live: dict[tuple[str, str], str] = {}
        made: set[tuple[str, str]] = set()
        for pod in self._bench.api.list(PODS, self._bench.namespace)["items"]:
            labels, status = pod["metadata"]["labels"], pod["status"]
            name, attempt = labels["trimtab.dev/job-name"], int(labels["trimtab.dev/attempt"])
            place = (name, labels["batch.kubernetes.io/job-completion-index"])
            # Of one Job the Job controller alone makes pods (the operator has no right to). It was seen to make two,
            # when the API server was killed while it may have asked for one. Ours would be pods of two Jobs.
            of_one_job = (controller_uid(pod), place[1])
            if of_one_job in made:
                self.doubled.add(name)
            made.add(of_one_job)
            if status["phase"] in ("Succeeded", "Failed"):
                continue
            of = f"attempt {attempt} of Job {controller_uid(pod)}"
            if live.setdefault(place, of) != of:
                self.twins.append(f"{name}: {live[place]}, {of}")
            deeds = FATES[name.split("-")[0]][0]
            match deeds[min(attempt, len(deeds) - 1)]:
                case "succeed":
                    self._bench.play_succeeded(pod)
                case "fail":
                    self._bench.play_failed(pod, exit_code=1)
                case "disrupt":
                    self._bench.play_disrupted(pod)
                case "run" if status["phase"] == "Pending":
                    self._bench.play_running(pod)


def account_of(bench: Workbench, name: str) -> str:
    """What became of a job, its Job and its pods, in a few lines."""
    status = bench.status(name)
    child = (bench.child(attempt_name(name, status.get("restarts", 0))) or {}).get("status")
    return "\n".join([f"{name}: {status}", f"    Job: {child}", *(f"    pod: {each}" for each in bench.pods(name))])


#: Jobs that are made before each disturbance.
JOBS_BETWEEN = 20
#: What befalls the operator and its API server, one after the other.
DISTURBANCES = ("kill", "restart", "kill", "expire", "steal", "slow", "restart and kill", "steal", "expire", "kill")
#: Seconds for which etcd answers nothing: less than a lease lasts.
SLOW_SECONDS = 5.0


def disturb(what: str, bench: Workbench, control_plane: ControlPlane, program: Program) -> None:
    """Do one of `DISTURBANCES`: but for a killed or robbed one, the operator goes on if it can."""
    match what:
        case "restart" | "restart and kill" | "expire":
            control_plane.kill_apiserver()
            if what == "expire":  # what the watches have seen is older than anything that is still known
                control_plane.compact()
            control_plane.start_apiserver()
        case "slow":
            etcd = control_plane.programs["etcd"].process
            etcd.send_signal(signal.SIGSTOP)
            time.sleep(SLOW_SECONDS)  # it is this long that everybody waits for an answer
            etcd.send_signal(signal.SIGCONT)
        case "steal":
            wait_until(lambda: leader(bench), "there is a lease to steal")
            thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
            bench.api.merge(LEASES, "default", "trimtab-operator", thief)
            wait_until(lambda: not program.is_running, "the operator ends", FAILOVER_SECONDS)
    if "kill" in what:
        program.kill()


@pytest.mark.parametrize(
    "disturbances",
    [
        ("kill", "expire", "steal"),
        pytest.param(("slow",), marks=pytest.mark.full),
        pytest.param(DISTURBANCES, marks=pytest.mark.full),
    ],
    ids=["60 jobs", "20 jobs on a slow etcd", "200 jobs"],
)
def test_jobs_end_as_they_should_whatever_happens_meanwhile(disturbances, bench, operators, own_control_plane):
    num_jobs = JOBS_BETWEEN * len(disturbances)
    chance = random.Random(7)
    fates = list(FATES)
    names = [f"{fates[number % len(fates)]}-{number}" for number in range(num_jobs)]
    player = Player(bench)
    player.start()
    program = operators.start()
    wait_until(lambda: leader(bench), "it leads")
    remaining = list(names)
    for turn, disturbance in enumerate(disturbances):
        for _ in range(JOBS_BETWEEN):
            name = remaining.pop()
            bench.create(name, workers=1 + turn % 2, maxRestarts=1)
        time.sleep(chance.uniform(0.3, 4.0))  # a random point of their lives is what this is about
        disturb(disturbance, bench, own_control_plane, program)
        for name in [each for each in names if each.startswith("gone") and each not in remaining][turn :: len(fates)]:
            if job := bench.job(name):
                bench.api.delete(TRAINING_JOBS, bench.namespace, name, job["metadata"]["uid"])
        if not program.is_running:  # killed, robbed, or without an API server for longer than its lease
            # The next need not wait for the dead one's lease, or the test would be mostly waiting.
            own_control_plane.kubectl("delete", "lease", "trimtab-operator")
            program = operators.start()
    for name in (each for each in names if each.startswith("gone")):
        if job := bench.job(name):
            bench.api.delete(TRAINING_JOBS, bench.namespace, name, job["metadata"]["uid"])

    kept = {name: FATES[name.split("-")[0]] for name in names if not name.startswith("gone")}

    def unfinished() -> list[str]:
        jobs = {each["metadata"]["name"]: each for each in bench.api.list(TRAINING_JOBS, bench.namespace)["items"]}
        return [name for name, fate in kept.items() if jobs[name].get("status", {}).get("state") != fate[1]]

    def what_holds_them() -> str:
        return "\n".join(["every job ends as it should", *(account_of(bench, name) for name in unfinished())])

    wait_until(lambda: not unfinished(), what_holds_them, seconds=300, interval=1)
    player.stopped.set()
    player.join()
    restarts_of = {name: bench.status(name)["restarts"] for name in kept}
    for name, (_, _, restarts) in kept.items():
        assert restarts_of[name] == restarts or name in player.doubled, account_of(bench, name)
    assert sorted(set(player.twins)) == []
    last_attempts = {attempt_name(name, restarts) for name, restarts in restarts_of.items()}

    def jobs_made() -> set[str]:
        return {each["metadata"]["name"] for each in bench.api.list(JOBS, bench.namespace)["items"]}

    wait_until(lambda: jobs_made() == last_attempts, "the last attempts are left", seconds=120, interval=1)

    def left_of_earlier_attempts() -> list[str]:
        pods = [each["metadata"] for each in bench.api.list(PODS, bench.namespace)["items"]]
        attempts = [(each["labels"]["trimtab.dev/job-name"], each["labels"]["trimtab.dev/attempt"]) for each in pods]
        return [name for name, attempt in attempts if name in kept and int(attempt) != restarts_of[name]]

    wait_until(lambda: not left_of_earlier_attempts(), "pods of earlier attempts are gone", seconds=120, interval=1)

    def strays() -> list[str]:
        return [each for each in bench.leftovers() if "gone-" in each]

    wait_until(lambda: not strays(), "nothing is left of deleted jobs", seconds=120, interval=1)
