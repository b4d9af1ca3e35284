"""`trimtab top` on a real API server: what it shows of jobs, that it follows them, and what it says where it cannot."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from programs import Program, wait_until
from trimtab_operator.kube.resources import TRAINING_JOBS

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

TOP = (sys.executable, "-m", "trimtab", "top")
#: The operator leaves such jobs alone; their status is the test's to write.
ANOTHER = "example.com/another"
TRAINING = {
    "state": "Running",
    "step": 41,
    "loss": 0.25,
    "gain": 0.8,
    "stepTime": "120ms",
    "lastProgressTime": "2026-03-01T12:00:00Z",
    "plan": {"version": 3, "name": "0.01/all-gather", "ratio": "0.01", "collective": "all-gather", "reason": "faster"}
    | {"adoptedAtStep": 7},
    "message": "rank 1 comes 0.3 s after the others in 97% of the steps",
}


def write(bench, name, **status):
    """The job's status, as an operator writes it."""
    path = TRAINING_JOBS.path(bench.namespace, name, "status")
    bench.api.send("PATCH", path, body={"status": status}, content_type="application/merge-patch+json")


def top(kubeconfig, *flags, code=0):
    """What it prints, and its one line of complaint."""
    command = [*TOP, f"--kubeconfig={kubeconfig}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_jobs_are_shown_as_they_are_and_as_they_become(namespace, control_plane, tmp_path):
    bench = namespace
    for name in ("digits", "queued"):
        bench.create(name, managedBy=ANOTHER)
    write(bench, "digits", **TRAINING)
    here = f"--namespace={bench.namespace}"

    head, digits, queued = top(control_plane.kubeconfig, here, "--once").splitlines()
    assert head.split()[:4] == ["JOB", "STATE", "STEP", "LOSS"]
    assert digits.split()[:7] == ["digits", "Running", "41", "0.25", "120ms", "0.01/all-gather", "0.80"]
    assert digits.endswith("ago  rank 1 comes 0.3 s after the others in 97% of the steps")
    assert queued.split()[:2] == ["queued", "Pending"]
    *_, why, message = top(control_plane.kubeconfig, here, "digits", "--once").splitlines()
    assert why.split(maxsplit=1) == ["plan", "since step 7: faster"]
    assert message.split(maxsplit=1) == ["message", TRAINING["message"]]
    assert "no TrainingJob in namespace" in top(control_plane.kubeconfig, here, "nonesuch", "--once", code=2)
    everywhere = top(control_plane.kubeconfig, "-A", "--once", "--json")
    found = [json.loads(line) for line in everywhere.splitlines()]
    (shown,) = [each for each in found if (each["namespace"], each["name"]) == (bench.namespace, "digits")]
    assert shown["since_progress_seconds"] > 0
    assert (shown["step"], shown["plan"], shown["gain"]) == (41, "0.01/all-gather", 0.8)
    assert shown["step_seconds"] == 0.12

    following = Program([*TOP, f"--kubeconfig={control_plane.kubeconfig}", here, "--json"], tmp_path / "top.log")

    def lines():
        assert following.is_running, following.last_lines()
        return [json.loads(line) for line in following.log.read_text().splitlines() if line.endswith("}")]

    wait_until(lambda: len(lines()) == 2, "it has listed both")
    write(bench, "digits", step=42)
    wait_until(lambda: lines()[-1]["step"] == 42, "it is told of a step")
    bench.create("late", managedBy=ANOTHER)
    wait_until(lambda: lines()[-1]["name"] == "late", "it is told of a new job")
    bench.api.send("DELETE", TRAINING_JOBS.path(bench.namespace, "queued"))
    gone = {"namespace": bench.namespace, "name": "queued", "state": "Deleted"}
    wait_until(lambda: lines()[-1] == gone, "it is told that a job is gone")
    assert len(lines()) == 5, "each change is one line"
    following.kill()


def test_who_may_not_list_jobs_is_told_what_to_ask_for(control_plane, namespace):
    kubeconfig = control_plane.kubeconfig_of("scheduler")
    said = top(kubeconfig, "-A", "--once", code=2)
    refused = "does not let you list and watch trainingjobs in all namespaces; name one by -n, or ask for the role view"
    assert said == f"trimtab: API server: '{control_plane.server}': {refused} there\n"
    assert "in namespace team, or ask" in top(kubeconfig, "-n", "team", "--once", code=2)


def test_where_no_cluster_is_named_or_answers_one_line_says_so(tmp_path, control_plane):
    missing = tmp_path / "none"
    assert f"trimtab: kubeconfig: '{missing}': names no cluster" in top(missing, "--once", code=2)
    kubeconfig = json.loads(control_plane.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(json.dumps(kubeconfig))
    said = top(tmp_path / "away", "--once", code=2)
    assert said.count("\n") == 1
    assert "'https://127.0.0.1:9': does not answer" in said


@pytest.mark.parametrize(("status", "remedy"), [(404, "helm install trimtab"), (401, "renew the credentials")])
def test_a_cluster_that_knows_no_job_or_not_who_asks_says_what_to_do(tmp_path, status, remedy):
    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(status)

        def log_message(self, *_):
            """Nobody reads of requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        named = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
        (tmp_path / "config").write_text(
            json.dumps({**named, "contexts": [context], "users": [{"name": "u", "user": {}}]})
        )
        said = top(tmp_path / "config", "--once", code=2)
        server.shutdown()
    assert said.count("\n") == 1
    assert remedy in said
