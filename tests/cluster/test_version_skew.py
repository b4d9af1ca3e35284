"""An upgrade and a rollback by one version while jobs run: whichever of definition and operator comes first."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import pytest
import yaml
from control_plane import ControlPlane
from next_version import NextVersion
from programs import wait_until
from trimtab_operator.kube.resources import LEASES, SECRETS, TRAINING_JOBS, Object
from workbench import CRD, Operators, Workbench, connect, eventually, install

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(600)]


@pytest.fixture
def bench(tmp_path):
    """A cluster of its own: its definition of TrainingJob changes."""
    with ControlPlane(tmp_path) as control_plane:
        install(control_plane)
        yield Workbench(control_plane, connect(control_plane), "skew")


@dataclass
class Cluster:
    """What `helm upgrade` and `helm rollback` change."""

    bench: Workbench
    operators: Operators

    def define(self, definition: Object, takes_new_fields: bool) -> None:
        done = self.bench.control_plane.kubectl("replace", "-f", "-", stdin=json.dumps(definition))
        assert done.returncode == 0, done.stderr
        tried = json.dumps(self.bench.manifest("tried", nextMood="Loud"))

        def is_taken() -> bool:
            done = self.bench.control_plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=tried)
            return done.returncode == 0

        eventually(lambda: {is_taken() for _ in range(3)} == {takes_new_fields}, "the definition is in force")

    def run_operator(self, version: NextVersion | None = None) -> None:
        """Of the next version, or else of ours, in the place of the one that runs."""
        self.operators.stop()
        self.operators.start(variables=version.environment if version else None)
        wait_until(lambda: self.bench.api.get(LEASES, "default", "trimtab-operator"), "it leads")

    def is_seen(self, name: str) -> None:
        """Wait until the operator has seen the job as it is by now."""
        self.bench.change(name, maxRestarts=self.bench.job(name)["spec"]["maxRestarts"] + 1)
        generation = self.bench.job(name)["metadata"]["generation"]
        eventually(lambda: self.bench.status(name).get("observedGeneration") == generation, f"{name} was looked at")

    def start(self, name: str, **spec) -> None:
        manifest = self.bench.manifest(name, **spec)
        self.bench.api.create(TRAINING_JOBS, manifest)
        self.bench.play_running(*self.bench.wait_for_pods(name))
        eventually(lambda: self.bench.condition(name, "Started").get("status") == "True", f"{name} runs")

    def life(self, name: str) -> object:
        """What must stay as it is while a job runs."""
        status, child = self.bench.status(name), self.bench.child(name)
        assert child is not None, f"the Job of {name} is gone: {status}"
        pods = [pod["metadata"]["uid"] for pod in self.bench.pods(name)]
        ready = self.bench.condition(name, "Ready")["reason"]
        return child["metadata"]["uid"], pods, status["state"], status["restarts"], ready != "UnreadableSpec"

    def job_file(self, name: str) -> Object:
        files = self.bench.api.get(SECRETS, self.bench.namespace, f"{name}-trimtab")
        spec: Object = json.loads(base64.b64decode(files["data"]["job.json"]))["spec"]
        return spec


@pytest.fixture
def cluster(bench, tmp_path):
    operators = Operators(bench.control_plane, tmp_path)
    yield Cluster(bench, operators)
    operators.stop()


def test_jobs_run_on_through_an_upgrade_and_a_rollback_in_which_the_definition_comes_first(cluster, tmp_path):
    newer, ours = NextVersion(tmp_path / "next"), yaml.safe_load(CRD.read_text())
    cluster.run_operator()
    cluster.start("old")
    lives = {"old": cluster.life("old")}

    def nothing_has_changed() -> None:
        for name, life in lives.items():
            cluster.is_seen(name)
            assert cluster.life(name) == life, name

    cluster.define(newer.definition(), takes_new_fields=True)  # as Helm does: the definition first
    nothing_has_changed()
    cluster.start("between", nextMood="Loud")
    assert "nextMood" not in cluster.job_file("between")
    lives["between"] = cluster.life("between")

    cluster.run_operator(newer)
    nothing_has_changed()
    cluster.start("new", nextMood="Loud")
    assert cluster.job_file("new")["nextMood"] == "Loud", "it is the next version's operator"
    assert "network" not in cluster.job_file("new"), "what is as by default is left out"
    lives["new"] = cluster.life("new")
    spec = cluster.bench.job("new")["spec"]
    assert (spec["nextMood"], spec["network"]["nextCount"]) == ("Loud", 7), "the definition fills in its defaults"

    cluster.define(ours, takes_new_fields=False)  # and back
    nothing_has_changed()
    cluster.run_operator()
    nothing_has_changed()


@pytest.mark.full
def test_an_operator_of_before_takes_over_while_the_definition_is_still_the_newer_one(cluster, tmp_path):
    newer = NextVersion(tmp_path / "next")
    cluster.define(newer.definition(), takes_new_fields=True)
    cluster.run_operator(newer)
    cluster.start("new", nextMood="Loud")
    life = cluster.life("new")
    cluster.run_operator()
    cluster.is_seen("new")
    assert cluster.life("new") == life
