"""What a test does to a cluster: apply jobs, play the kubelet, look, and run operators."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import operator_role
from control_plane import ControlPlane
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from programs import Program, wait_until
from trimtab_operator.kube.api import Api, RefusedError
from trimtab_operator.kube.resources import (
    CLAIMS,
    EVENTS,
    JOBS,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    TRAINING_JOBS,
    Object,
    Resource,
)
from trimtab_operator.main import LOST_LEADERSHIP

OPERATOR = (Path(sys.executable).parent / "trimtab-operator",)
CRD = Path(__file__).parents[2] / "charts/trimtab/crd/trainingjobs.trimtab.dev.yaml"
CHILDREN = (JOBS, PODS, SERVICES, SECRETS, CLAIMS, NETWORK_POLICIES)
NAMESPACES = Resource("v1", "Namespace", "namespaces")


def connect(control_plane: ControlPlane) -> Api:
    """Requests as a user with every right."""
    settings = Configuration()
    config.load_kube_config(str(control_plane.kubeconfig), client_configuration=settings)
    settings.connection_pool_maxsize = 64
    return Api(ApiClient(settings))


def install(control_plane: ControlPlane) -> None:
    """The CRD, and the operator's rights."""
    for text in (CRD.read_text(), json.dumps({"apiVersion": "v1", "kind": "List", "items": operator_role.MANIFESTS})):
        applied = control_plane.kubectl("apply", "-f", "-", stdin=text)
        assert applied.returncode == 0, applied.stderr
    served = control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRD))
    assert served.returncode == 0, served.stderr


class Operators:
    """Operator processes on a control plane."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._directory = directory
        self.running: list[Program] = []

    def start(
        self,
        *flags: str,
        wait: bool = True,
        program: Sequence[str | Path] = OPERATOR,
        variables: Mapping[str, str] | None = None,
    ) -> Program:
        """Start one more, by default waiting until it has seen the cluster."""
        log = self._directory / f"operator-{len(self.running)}-{datetime.now(UTC):%H%M%S%f}.log"
        environment = {"KUBECONFIG": str(self._control_plane.operator_kubeconfig), **(variables or {})}
        command = [*program, "--netmon-image", "netmon.test/netmon:1", "--port", "0", *flags]
        started = Program(command, log, environment)
        self.running.append(started)
        if wait:
            wait_until(lambda: self.http(started, "/readyz") is not None, f"the operator is ready ({log})")
        return started

    def keep_one_leading(self, ended: threading.Event) -> None:
        """As a Deployment does, until ``ended``: the one started last is replaced where it has lost its leadership.

        A machine that stands still for longer than a lease takes it. Whatever else ends an operator is not mended.
        """
        while not ended.wait(1.0):
            last = self.running[-1]
            if not last.is_running and last.process.returncode == LOST_LEADERSHIP:
                self.start(wait=False)

    def port(self, program: Program) -> int | None:
        """Where it serves health and metrics; None before it says so."""
        for line in program.log.read_text().splitlines():
            if "health and metrics on port" in line:
                return int(line.rsplit(" ", 1)[1])
        return None

    def http(self, program: Program, path: str) -> str | None:
        """What it answers, if that is a success."""
        status, text = self.ask(program, path)
        return text if status == 200 else None

    def ask(self, program: Program, path: str) -> tuple[int, str]:
        """The status and the text that it answers; 0 and nothing where it does not. It must be running."""
        assert program.is_running, program.last_lines()
        port = self.port(program)
        if port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def stop(self) -> None:
        """End all of them."""
        for each in self.running:
            if each.is_running:
                each.stop()


class Workbench:
    """One namespace of a cluster."""

    def __init__(self, control_plane: ControlPlane, api: Api, namespace: str) -> None:
        self.control_plane = control_plane
        self.api = api
        self.namespace = namespace
        api.send(  # namespaces are in no namespace, as which the operator knows none
            "POST",
            NAMESPACES.path(None),
            body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        )

    def manifest(self, name: str, **spec: Any) -> Object:
        """A small good job."""
        pod = {"containers": [{"name": "trainer", "image": "trainer.test/trainer:1", "command": ["python", "t.py"]}]}
        return {
            "apiVersion": TRAINING_JOBS.api_version,
            "kind": TRAINING_JOBS.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"workers": 2, "template": {"spec": pod}, **spec},
        }

    def create(self, name: str, **spec: Any) -> None:
        """Create a small good job."""
        self.api.create(TRAINING_JOBS, self.manifest(name, **spec))

    def start(self, name: str, **spec: Any) -> list[Object]:
        """Create a job, play that its pods run and train, and return them."""
        self.create(name, **spec)
        pods = self.wait_for_pods(name, spec.get("workers", 2))
        self.play_running(*pods)
        self.play_training(name)
        return pods

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of a job's spec."""
        self.api.merge(TRAINING_JOBS, self.namespace, name, {"spec": spec})

    def job(self, name: str) -> Object:
        """The TrainingJob; empty if there is none."""
        return self.api.get(TRAINING_JOBS, self.namespace, name) or {}

    def status(self, name: str) -> Object:
        """Its status; empty if there is none."""
        status: Object = self.job(name).get("status", {})
        return status

    def condition(self, name: str, kind: str) -> Object:
        """One of its conditions; empty if there is none."""
        return next((each for each in self.status(name).get("conditions", ()) if each["type"] == kind), {})

    def child(self, name: str) -> Object | None:
        """The Job of a TrainingJob."""
        return self.api.get(JOBS, self.namespace, name)

    def pods(self, name: str, attempt: int | None = None) -> list[Object]:
        """Its pods, by worker."""
        selector = f"trimtab.dev/job-name={name},!trimtab.dev/component" + (
            f",trimtab.dev/attempt={attempt}" if attempt is not None else ""
        )
        pods = self.api.list(PODS, self.namespace, labelSelector=selector)["items"]
        return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))

    def events(self, name: str) -> dict[str, str]:
        """Messages of the job's events, by reason; of several for one reason any."""
        return dict(self.all_events(name))

    def all_events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of each of the job's events, in no order."""
        found = self.api.list(EVENTS, self.namespace, fieldSelector=f"involvedObject.name={name}")["items"]
        return [(each["reason"], each["message"]) for each in found if each["involvedObject"]["kind"] == "TrainingJob"]

    def leftovers(self) -> list[str]:
        """Everything in the namespace that belongs to any job."""
        found = []
        for resource in CHILDREN:
            for each in self.api.list(resource, self.namespace, labelSelector="trimtab.dev/job-name")["items"]:
                found.append(f"{resource.kind} {each['metadata']['name']}")
        return found

    def wait_for_state(self, name: str, state: str, seconds: float = 60.0) -> Object:
        """Wait until the job is in a state; returns its status."""
        try:
            wait_until(lambda: self.status(name).get("state") == state, f"{name} is {state}", seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; status: {json.dumps(self.status(name), indent=1)}") from None
        return self.status(name)

    def play_training(self, name: str) -> Object:
        """As rank 0 would, whom nobody runs here: once all workers are ready it says that steps are done.

        It is written as an operator writes it that has heard so. Returns the status.
        """
        waits = ("WaitingForTraining", "Rank0Silent", "Running")
        eventually(lambda: self.condition(name, "Ready").get("reason") in waits, f"every worker of {name} is ready")
        path = TRAINING_JOBS.path(self.namespace, name, "status")
        change = {"status": {"state": "Running"}}
        self.api.send("PATCH", path, body=change, content_type="application/merge-patch+json")
        eventually(lambda: self.condition(name, "Ready").get("reason") == "Running", f"{name} is said to train")
        return self.status(name)

    def wait_for_pods(self, name: str, count: int = 2, attempt: int | None = None) -> list[Object]:
        """Wait until the Job controller has made the pods; returns them."""
        wait_until(lambda: len(self.pods(name, attempt)) == count, f"{name} has {count} pods of attempt {attempt}")
        return self.pods(name, attempt)

    def play_running(self, *pods: Object, is_ready: bool = True) -> None:
        """As a kubelet would: the pods run and are ready. Or, where a node is away: for all that is known they run."""
        for pod in pods:
            names = [each["name"] for each in pod["spec"]["containers"]]
            running = [{**_container(name), "ready": is_ready, "state": {"running": {}}} for name in names]
            ready = {"type": "Ready", "status": str(is_ready)}
            self._play(pod, {"phase": "Running", "conditions": [ready], "containerStatuses": running})

    def play_address(self, pod: Object, address: str) -> None:
        """As a kubelet would: the pod has an address."""
        self._play(pod, {"podIP": address, "podIPs": [{"ip": address}]})

    def play_succeeded(self, *pods: Object) -> None:
        """As a kubelet would: the pods end well."""
        for pod in pods:
            self._play(pod, {"phase": "Succeeded", "containerStatuses": [_terminated("trainer", 0)]})

    def play_failed(self, pod: Object, exit_code: int = 1, message: str = "", reason: str = "Error") -> None:
        """As a kubelet would: the trainer fails."""
        ended = _terminated("trainer", exit_code, message, reason)
        self._play(pod, {"phase": "Failed", "containerStatuses": [ended]})

    def play_waiting(self, pod: Object, reason: str, message: str) -> None:
        """As a kubelet would: the trainer cannot start."""
        waiting = {**_container("trainer"), "state": {"waiting": {"reason": reason, "message": message}}}
        self._play(pod, {"phase": "Pending", "containerStatuses": [waiting]})

    def play_unschedulable(self, pod: Object, message: str) -> None:
        """As a scheduler would."""
        no_place = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._play(pod, {"phase": "Pending", "conditions": [no_place]})

    def play_disrupted(self, pod: Object) -> None:
        """As a node's drain would: the pod is taken away."""
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
        self._play(pod, {"phase": "Failed", "conditions": [taken], "containerStatuses": [_terminated("trainer", 143)]})

    def _play(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        path = PODS.path(self.namespace, metadata["name"], "status")
        try:
            self.api.send("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")
        except RefusedError as refusal:
            if refusal.status != 404:  # it went meanwhile
                raise


def eventually(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition that reads many objects."""
    wait_until(condition, what, seconds, interval=0.2)


def _container(name: str) -> Object:
    return {"name": name, "image": "", "imageID": "", "restartCount": 0, "ready": False}


def _terminated(name: str, exit_code: int, message: str = "", reason: str = "Error") -> Object:
    ended = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else reason,
        "message": message,
        "finishedAt": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    return {**_container(name), "state": {"terminated": ended}}
