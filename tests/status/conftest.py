"""A run directory that a test writes as rank 0 and its launcher would."""

import json

import pytest
from run_lines import DECISION
from trimtab.run_files.layout import RunDirectory


class RunWriter:
    """Appends to the files of a run."""

    def __init__(self, path):
        self.directory = RunDirectory(path)
        self.directory.prepare()
        self.job()

    def job(self, **communication):
        container = {"name": "trainer", "command": ["python", "train.py"]}
        spec = {"workers": 4, "template": {"spec": {"containers": [container]}}, "communication": communication}
        api = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"}}
        self.directory.job.write_text(json.dumps(api | {"spec": spec}))

    def step(self, number, plan="dense-ring", version=0, seconds=0.1, gain=1.0, **more):
        line = {"time": 0.0, "step": number, "loss": 1 / (number + 1), "step_seconds": seconds, "gain": gain}
        self._append(self.directory.metrics, line | {"plan": plan, "plan_version": version} | more)

    def alone(self, number):
        self._append(self.directory.metrics, {"time": 0.0, "step": number, "loss": None, "step_seconds": 0.1})

    def decision(self, plan, version, reason, num_buffers=1):
        adopted = {"name": plan, "version": version, "fusion": {"cuts": list(range(num_buffers))}}
        self._append(self.directory.decisions, DECISION | {"adopted": adopted, "reason": reason})

    def end(self, state, message=""):
        self.directory.result.write_text(json.dumps({"state": state, "message": message}))

    def _append(self, path, line):
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def run(tmp_path):
    return RunWriter(tmp_path / "run")
