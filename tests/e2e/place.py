"""A namespace of a cluster, and what a user does there with kubectl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from programs import wait_until
from trimtab_api.trainingjob.status import FINAL_STATES


def condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a status; empty if it is not there."""
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def has_ended(status: Mapping[str, Any]) -> bool:
    """Whether a TrainingJob is in a state that it never leaves."""
    return status.get("state") in FINAL_STATES


class StepTag:
    """One namespace."""

    def __init__(self, kubectl: Path, kubeconfig: Path, namespace: str) -> None:
        self._command = (str(kubectl), f"--kubeconfig={kubeconfig}")
        self.namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """What kubectl prints, asked about this namespace. Raises RuntimeError with its complaint."""
        command = [*self._command, f"--namespace={self.namespace}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def get(self, *what: str) -> dict[str, Any]:
        """An object or a list of them; an empty dictionary if there is none."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "--ignore-not-found", "-o", "json") or "{}")
        return found

    def status(self, job: str) -> dict[str, Any]:
        """Of a TrainingJob; empty while there is none."""
        status: dict[str, Any] = self.get("tj", job).get("status", {})
        return status

    def events(self, job: str) -> list[tuple[str, str]]:
        """Reason and message of what the operator tells about a TrainingJob, oldest first."""
        about = f"involvedObject.kind=TrainingJob,involvedObject.name={job}"
        found = self.get("events", f"--field-selector={about}", "--sort-by=.firstTimestamp").get("items", ())
        return [(each["reason"], each["message"]) for each in found]

    def pods(self, job: str) -> list[dict[str, Any]]:
        """Those of a TrainingJob, by worker."""
        found = self.get("pods", f"--selector=trimtab.dev/job-name={job}").get("items", ())
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))

    def wait_for_status(
        self, job: str, condition: Callable[[dict[str, Any]], object], what: str, seconds: float = 120.0
    ) -> dict[str, Any]:
        """Wait until a TrainingJob's status is as asked; returns it. Raises TimeoutError that tells how it is.

        At once if the job has ended otherwise: nothing else will come of it.
        """
        seen: dict[str, Any] = {}

        def is_decided() -> object:
            seen.clear()
            seen.update(self.status(job))
            return condition(seen) or has_ended(seen)

        try:
            wait_until(is_decided, what, seconds, interval=0.3)
            if not condition(seen):
                raise TimeoutError(f"not so when the job had ended: {what}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.account(job)}") from None
        return dict(seen)

    def account(self, job: str) -> str:
        """How a TrainingJob is, and what its containers said last."""
        flags = ("--all-containers", "--prefix", "--ignore-errors", "--tail=15", "--max-log-requests=50")
        try:
            said = self.kubectl("logs", f"--selector=trimtab.dev/job-name={job}", *flags)
        except RuntimeError as error:  # a container that has not started
            said = str(error)
        return f"{self.kubectl('describe', 'tj', job)}\n{said}"

    def leftovers(self) -> list[str]:
        """What belongs to any job."""
        kinds = "tj,job,pod,service,endpointslice,secret,configmap,serviceaccount,networkpolicy"
        return self.kubectl("get", kinds, "--selector=trimtab.dev/job-name", "-o", "name").split()

    def wait(self, what: str, condition: str, seconds: float = 60.0) -> None:
        """Wait as ``kubectl wait`` does. Raises RuntimeError that tells how the object is when the time is up."""
        try:
            self.kubectl("wait", f"--for={condition}", f"--timeout={seconds:g}s", what, timeout=seconds + 30)
        except RuntimeError as error:
            logs = self.kubectl("logs", what, "--all-containers", "--tail=20") if what.startswith("pod/") else ""
            raise RuntimeError(f"{error}\n{self.kubectl('describe', what)}\n{logs}") from None

    def delete(self) -> None:
        """Delete the namespace and all in it."""
        self.kubectl("delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def wait_until_gone(self) -> None:
        """Wait until the namespace has gone."""
        wait_until(lambda: not self.get("namespace", self.namespace), f"{self.namespace} is gone", 120, interval=0.5)
