"""Looking at a job while the API server answers only in part."""

import json
import re
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from fixtures import NOW, SETTINGS, UID, ago, job, rank0_status
from kit.silent_training import SilentTraining
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.children.job import job_manifest
from trimtab_operator.children.secret import secret
from trimtab_operator.decisions.policies.timers import SPREAD
from trimtab_operator.kube.api import Api, RefusedError, Unreachable
from trimtab_operator.reconcile.caches import MOST_WHOLE_BYTES, trim_training_job
from trimtab_operator.reconcile.reconciler import RESYNC_SECONDS, Reconciler
from trimtab_operator.status.writer import NEWS_EVENTS, NEWS_WRITES


class ApiServer(ThreadingHTTPServer):
    """Takes every status; answers as many events as ``faults`` says with its next fault, and takes the others."""

    def __init__(self, faults):
        super().__init__(("127.0.0.1", 0), Answer)
        self.faults = list(faults)
        self.job_fault = None
        self.change_fault = None
        self.figure_fault = None
        self.foreign = None
        self.secret = None
        self.job = dict
        self.pods = []
        self.made = []
        self.status = {}
        self.num_statuses = 0
        self.told = []


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        if urlsplit(self.path).path.endswith("/trainingjobs/digits"):
            self.answer(200, self.server.job())
        elif urlsplit(self.path).path.endswith("/pods"):
            self.answer(200, {"items": self.server.pods})
        elif self.server.secret is not None and urlsplit(self.path).path.endswith("/secrets/digits-trimtab"):
            self.answer(200, self.server.secret)
        elif self.server.foreign is not None and urlsplit(self.path).path.endswith(self.server.foreign):
            self.answer(200, {"metadata": {"ownerReferences": []}})
        else:
            self.answer(404, {"reason": "NotFound"})

    def do_DELETE(self):
        self.answer(*self.server.change_fault)

    def do_PATCH(self):
        written = self.read()
        if urlsplit(self.path).path.endswith("/jobs/digits") and self.server.change_fault is not None:
            self.answer(*self.server.change_fault)
            return
        if self.server.figure_fault is not None and "plan" in written.get("status", {}):
            self.answer(*self.server.figure_fault)
            return
        if "status" in written:
            self.server.status = written["status"]
            self.server.num_statuses += 1
        self.answer(200, {"metadata": {"resourceVersion": "2"}})

    def do_POST(self):
        made = self.read()
        self.server.made.append(made)
        if made["kind"] == "Job" and self.server.job_fault is not None:
            assert "fieldValidation=Strict" in self.path
            self.answer(*self.server.job_fault)
            return
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault == "no answer":
            self.close_connection = True
        elif fault is not None:
            self.answer(*fault)
        else:
            if made["kind"] == "Event":
                self.server.told.append((made["reason"], made["metadata"]["name"]))
            self.answer(201, {})

    def read(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    running = []

    def serve(*faults):
        server = ApiServer(faults)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server

    yield serve
    for each in running:
        each.shutdown()
        each.server_close()


class Ended:
    """What the watches have seen of a job whose pods have ended well."""

    def __init__(self, server):
        self.server = server

    def job(self, namespace, name):
        resource = job().model_dump(mode="json", by_alias=True, exclude_none=True)
        resource["metadata"] |= {"namespace": namespace, "uid": UID, "generation": 1}
        resource["metadata"]["resourceVersion"] = "2" if self.server.status else "1"
        return resource | {
            "status": self.server.status or {"observedGeneration": 1, "state": "Running", "startTime": ago(60)}
        }

    def batch_job(self, namespace, name):
        manifest = job_manifest(job(), "team", UID, 0, {}, SETTINGS)
        complete = {"type": "Complete", "status": "True"}
        return {
            "metadata": {**manifest["metadata"], "uid": "child-uid"},
            "spec": manifest["spec"],
            "status": {"conditions": [complete]},
        }

    def pods(self, namespace, name):
        return []


class Edited(Ended):
    """The same, after somebody has edited the job's spec."""

    def job(self, namespace, name):
        resource = super().job(namespace, name)
        resource["metadata"]["generation"] = 2
        return resource


class Suspended(Ended):
    """What they have seen of a job that runs, and is to be suspended."""

    def job(self, namespace, name):
        resource = super().job(namespace, name)
        resource["spec"]["suspend"] = True
        return resource

    def batch_job(self, namespace, name):
        return super().batch_job(namespace, name) | {"status": {"active": 2, "startTime": ago(60)}}


class Restarting(Suspended):
    """What they have seen of a job whose attempt is over, and its Job not yet gone."""

    def job(self, namespace, name):
        resource = Ended.job(self, namespace, name)
        resource["status"] |= {"restarts": 1}
        return resource


class New(Ended):
    """What they have seen of a job that has no Job."""

    def batch_job(self, namespace, name):
        return None


class Running(Ended):
    """What they have seen of a job that runs."""

    def batch_job(self, namespace, name):
        return super().batch_job(namespace, name) | {"status": {"active": 2, "ready": 2, "startTime": ago(60)}}


class Says(SilentTraining):
    """Rank 0 says what it is given."""

    def __init__(self, message):
        self.message = message

    def latest(self, uid):
        return self.message


def reconciler(server, seen=Ended, rank0_status=None, clock=lambda: NOW):
    api = Api(ApiClient(Configuration(host=f"http://127.0.0.1:{server.server_port}")))
    cache = seen(server)
    server.job = lambda: cache.job("team", "digits")
    return Reconciler(api, SETTINGS, cache, rank0_status or SilentTraining(), clock=clock)


@pytest.mark.parametrize(
    "fault", ["no answer", (429, {"reason": "TooManyRequests"}), (503, {"reason": "ServiceUnavailable"})]
)
def test_an_event_that_could_not_be_written_is_told_at_the_next_look(serve, fault):
    server = serve(fault, fault)
    subject = reconciler(server)
    for _ in range(2):
        with pytest.raises((RefusedError, *Unreachable)):
            subject.reconcile("team/digits")
    assert (server.status["state"], server.num_statuses, server.told) == ("Succeeded", 1, [])
    for _ in range(2):
        subject.reconcile("team/digits")
    assert [reason for reason, _ in server.told] == ["Succeeded"]
    assert server.num_statuses == 1, "the status said so from the first"


def test_what_was_written_is_looked_at_when_the_watch_brings_it_back(serve):
    assert RESYNC_SECONDS <= reconciler(serve()).reconcile("team/digits") <= RESYNC_SECONDS * (1 + SPREAD)


@pytest.mark.parametrize("fault", [(409, {"reason": "AlreadyExists"}), (403, {"reason": "Forbidden"})])
def test_an_event_that_exists_or_may_not_be_is_left_at_that(serve, fault):
    server = serve(fault)
    subject = reconciler(server)
    for _ in range(2):
        subject.reconcile("team/digits")
    assert (server.status["state"], server.told) == ("Succeeded", [])


def test_a_job_whose_status_a_newer_operator_wrote_is_looked_at_all_the_same(serve):
    server = serve()
    server.status = {
        "observedGeneration": 1,
        "state": "Paused",
        "startTime": ago(60),
        "conditions": [{"type": "Quiet"}],
    }
    reconciler(server).reconcile("team/digits")
    assert (server.status["state"], server.num_statuses) == ("Succeeded", 1)
    assert "Quiet" not in [each["type"] for each in server.status["conditions"]]


@pytest.mark.parametrize(("since", "seconds"), [(5, 1.0), (100, 10.0), (3600, 30.0)])
def test_what_the_api_server_refuses_is_tried_again_more_and_more_seldom(serve, since, seconds):
    server = serve((403, {"reason": "Forbidden", "message": "exceeded quota: none"}))
    said = {"status": "False", "reason": "Blocked", "lastTransitionTime": ago(since), "observedGeneration": 1}
    server.status = {"observedGeneration": 1, "state": "Pending", "conditions": [{"type": "Ready", **said}]}
    assert reconciler(server, New).reconcile("team/digits") == seconds
    assert server.status["message"] == "the API server refuses: exceeded quota: none"


@pytest.mark.parametrize("reason", ["Invalid", "BadRequest"])
def test_a_template_that_the_api_server_cannot_take_is_final_and_says_what_to_do(serve, reason):
    server = serve()
    server.job_fault = (400, {"reason": reason, "message": 'unknown field "spec.template.spec.nodeSelektor"'})
    reconciler(server, New).reconcile("team/digits")
    assert server.status["state"] == "Failed"
    remedy = "delete the job, mend its file and create it anew"
    assert server.status["message"] == f'spec.template: unknown field "spec.template.spec.nodeSelektor"; {remedy}'


POLICY = "ValidatingAdmissionPolicy 'teams' with binding 'teams' denied request: wants a label"


@pytest.mark.parametrize(
    ("status", "reason", "message", "causes"),
    [
        (422, "Invalid", f'jobs.batch "digits" is forbidden: {POLICY}', [{"message": "wants a label"}]),
        (413, "RequestEntityTooLarge", f'jobs.batch "digits" is forbidden: {POLICY}', [{"message": "wants a label"}]),
        (400, "BadRequest", 'admission webhook "teams.example.com" denied the request: wants a label', []),
        (422, "Invalid", 'admission webhook "teams.example.com" denied the request: wants a label', []),
        (422, "Invalid", 'Job "digits" is invalid: metadata.labels: wants one', [{"field": "metadata.labels"}]),
    ],
)
def test_what_a_policy_refuses_is_blocked_and_tried_again_for_policies_change(serve, status, reason, message, causes):
    server = serve()
    server.job_fault = (status, {"reason": reason, "message": message, "details": {"causes": causes}})
    assert reconciler(server, New).reconcile("team/digits") <= 30.0
    assert server.status["state"] == "Pending"
    ready = next(each for each in server.status["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], ready["message"]) == ("Blocked", f"the API server refuses: {message}")


def test_a_spec_that_the_api_server_finds_invalid_by_field_is_final(serve):
    server = serve()
    cause = {"field": "spec.template.spec.containers[0].resources.limits[cpu]"}
    server.job_fault = (422, {"reason": "Invalid", "message": "must be positive", "details": {"causes": [cause]}})
    reconciler(server, New).reconcile("team/digits")
    assert server.status["state"] == "Failed"


def test_a_spec_too_large_for_a_secret_is_final_and_says_what_to_do(serve):
    server = serve((422, {"reason": "Invalid", "message": "data: Too long: must have at most 1048576 bytes"}))
    reconciler(server, New).reconcile("team/digits")
    assert server.status["state"] == "Failed"
    assert server.status["message"].startswith("spec: data: Too long: must have at most 1048576 bytes; delete the job")


def test_a_webhook_that_is_away_is_told_and_tried_again(serve):
    server = serve()
    message = 'Internal error occurred: failed calling webhook "kueue": no endpoints available'
    server.job_fault = (500, {"reason": "InternalError", "message": message})
    assert reconciler(server, New).reconcile("team/digits") <= 30.0
    assert (server.status["state"], server.status["message"]) == ("Pending", f"the API server refuses: {message}")


def test_a_job_that_has_ended_has_ended_whatever_is_in_the_way_of_a_repair(serve):
    server = serve()
    server.foreign = "/services/digits"
    reconciler(server, Edited).reconcile("team/digits")
    assert server.status["state"] == "Succeeded"


class EditedAndRunning(Edited):
    """What they have seen of a job that runs, after somebody has edited its spec."""

    def batch_job(self, namespace, name):
        return super().batch_job(namespace, name) | {"status": {"active": 2, "ready": 2, "startTime": ago(60)}}


def test_a_secret_that_somebody_replaced_is_told_with_its_remedy(serve):
    server = serve()
    ours = secret(job(), "team", UID, NOW)
    server.secret = {**ours, "data": {"password": "c2VjcmV0"}}
    reconciler(server, EditedAndRunning).reconcile("team/digits")
    what = "the Secret digits-trimtab does not hold what the operator put there"
    assert server.status["message"] == f"{what}; delete it, and the operator makes another"
    server.secret = ours
    reconciler(server, EditedAndRunning).reconcile("team/digits")
    assert what not in server.status["message"]


@pytest.mark.parametrize(
    ("seen", "what"), [(Suspended, "suspend the Job"), (Restarting, "delete the Job and its pods")]
)
def test_a_refused_change_of_the_job_is_told_and_tried_again(serve, seen, what):
    server = serve()
    server.change_fault = (403, {"reason": "Forbidden", "message": "jobs.batch is forbidden"})
    assert reconciler(server, seen).reconcile("team/digits") <= 30.0
    assert server.status["message"] == f"the API server refuses to {what}: jobs.batch is forbidden"


JOB_OWNER = {"kind": "Job", "name": "digits", "uid": "gone", "controller": True}


def earlier_pod(spec=None, **metadata):
    labels = {"batch.kubernetes.io/job-completion-index": "1", "trimtab.dev/job-name": "digits"}
    metadata = {"name": "digits-1-x", "labels": labels, **metadata}
    return {"metadata": metadata, "spec": spec or {}, "status": {"phase": "Pending"}}


OTHER_OWNER = {"kind": "ReplicaSet", "name": "digits", "uid": "theirs", "controller": True}
WORKER = {"hostname": "digits-1", "subdomain": "digits"}


@pytest.mark.parametrize(
    "pod",
    [
        earlier_pod(),
        earlier_pod(ownerReferences=[OTHER_OWNER]),
        earlier_pod(ownerReferences=[OTHER_OWNER], spec=WORKER),
        earlier_pod(ownerReferences=[{**JOB_OWNER, "name": "letters"}]),
        earlier_pod(spec={**WORKER, "subdomain": "letters"}),
    ],
)
def test_a_pod_that_only_has_the_label_of_the_job_keeps_no_attempt_from_starting(serve, pod):
    server = serve()
    server.pods = [pod]
    reconciler(server, New).reconcile("team/digits")
    assert "Job" in [each["kind"] for each in server.made]


def test_a_worker_whose_job_was_deleted_without_it_keeps_the_next_attempt_waiting(serve):
    server = serve()
    server.pods = [earlier_pod(spec=WORKER)]
    assert reconciler(server, New).reconcile("team/digits") == 1.0
    assert server.status["message"].startswith("waits for pods of an earlier attempt to end (worker 1)")


def test_the_next_attempt_waits_for_the_pods_of_the_one_before(serve):
    """Their Job may be gone before them: the garbage collector deletes what it has seen."""
    server = serve()
    server.pods = [earlier_pod(ownerReferences=[JOB_OWNER])]
    server.job_fault = (500, {"reason": "none is to be made"})
    assert reconciler(server, New).reconcile("team/digits") == 1.0
    assert server.status["message"].startswith("waits for pods of an earlier attempt to end (worker 1)")


def test_an_api_server_in_trouble_is_tried_again_and_no_affair_of_the_jobs(serve):
    server = serve()
    server.job_fault = (500, {"reason": "InternalError", "message": "etcdserver: request timed out"})
    with pytest.raises(RefusedError):
        reconciler(server, New).reconcile("team/digits")
    assert server.status == {}


def test_a_figure_that_the_api_server_refuses_does_not_keep_the_end_of_a_job_from_being_written(serve):
    """Whatever the boundary lets through: another version's definition may take less."""
    server = serve()
    server.figure_fault = (422, {"reason": "Invalid", "message": "status.plan.version: must be at most 7"})
    reconciler(server, rank0_status=Says(rank0_status())).reconcile("team/digits")
    assert (server.status["state"], server.num_statuses) == ("Succeeded", 1)
    assert not {"plan", "network", "step", "loss"} & set(server.status)
    assert [reason for reason, _ in server.told] == ["Succeeded"]


def test_a_rank_0_that_changes_its_plan_all_the_time_costs_few_writes_and_few_events(serve):
    """Ten minutes of a plan a second, and of a network that comes and goes; the job's end is told all the same."""
    server, now = serve(), [NOW]
    rank0 = Says(rank0_status())
    subject = reconciler(server, Running, rank0, clock=lambda: now[0])
    for second in range(600):
        now[0] = NOW + timedelta(seconds=second)
        rank0.message = rank0_status(bandwidth=(1e9, 1e6)[second % 2], plan_version=second + 1)
        subject.reconcile("team/digits")
    reasons = [reason for reason, _ in server.told]
    assert NEWS_WRITES < server.num_statuses <= NEWS_WRITES + 2 * 600 / 10 + 1
    assert NEWS_EVENTS < len(reasons) <= NEWS_EVENTS + 600 / 60 + 2
    assert server.status["plan"]["version"] > 580
    written = server.num_statuses
    subject._observer._cache = Ended(server)
    subject.reconcile("team/digits")
    assert (server.status["state"], server.num_statuses) == ("Succeeded", written + 1)
    assert [reason for reason, _ in server.told][len(reasons) :][-1:] == ["Succeeded"]


class NewAndCached(New):
    """What the cache keeps of a job that has no Job."""

    def job(self, namespace, name):
        resource = super().job(namespace, name)
        trim_training_job(resource)
        return resource


def test_a_job_is_made_of_the_template_that_the_cache_does_not_hold(serve):
    server = serve()
    subject = reconciler(server, NewAndCached)
    server.job = lambda: New(server).job("team", "digits")
    subject.reconcile("team/digits")
    (made,) = [each for each in server.made if each["kind"] == "Job"]
    (trainer,) = [each for each in made["spec"]["template"]["spec"]["containers"] if each["name"] == "trainer"]
    assert trainer["command"][-2:] == ["python", "t.py"]


@pytest.mark.parametrize("change", [{"generation": 2}, {"uid": "another"}])
def test_nothing_is_made_of_a_job_that_has_changed_since_it_was_decided_about(serve, change):
    server = serve()
    subject = reconciler(server, NewAndCached)
    changed = New(server).job("team", "digits")
    changed["metadata"] |= change
    server.job = lambda: changed
    assert subject.reconcile("team/digits") <= 1.0
    assert [each["kind"] for each in server.made if each["kind"] != "Event"] == []


def test_a_template_that_cannot_be_read_is_told_and_nothing_is_made(serve):
    server = serve()
    subject = reconciler(server, NewAndCached)
    unreadable = New(server).job("team", "digits")
    unreadable["spec"]["template"]["spec"]["containers"][0]["command"] = []
    server.job = lambda: unreadable
    subject.reconcile("team/digits")
    assert server.status["message"].startswith("spec.template.spec.containers[0].command: ")
    assert [each["kind"] for each in server.made if each["kind"] != "Event"] == []


def test_a_job_that_is_too_large_is_told_by_its_size_and_nothing_is_made(serve):
    server = serve()
    subject = reconciler(server, NewAndCached)
    large = New(server).job("team", "digits")
    large["spec"]["template"]["spec"]["affinity"] = [[]] * MOST_WHOLE_BYTES
    server.job = lambda: large
    assert subject.reconcile("team/digits") is None
    assert re.match(
        rf"spec: has \d+ bytes with its template, and the operator reads {MOST_WHOLE_BYTES}", server.status["message"]
    )
    assert [each["kind"] for each in server.made if each["kind"] != "Event"] == []
