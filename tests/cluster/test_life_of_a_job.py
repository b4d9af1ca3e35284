"""The life of a TrainingJob on a real control plane: what is made, what restarts, how it ends, what is left."""

from __future__ import annotations

import base64
import json

import pytest
from trimtab_operator.kube.resources import JOBS, NETWORK_POLICIES, SECRETS, SERVICE_ACCOUNTS, SERVICES, TRAINING_JOBS
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]


def test_a_job_becomes_a_job_a_service_a_secret_and_a_policy(bench):
    bench.create("digits", workers=3)
    pods = bench.wait_for_pods("digits", 3)
    uid = bench.job("digits")["metadata"]["uid"]

    def child(resource, name):
        found = bench.api.get(resource, bench.namespace, name)
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainingJob", uid, True)
        return found

    job = child(JOBS, "digits")["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")
    service = child(SERVICES, "digits")["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    files = child(SECRETS, "digits-trimtab")["data"]
    assert set(files) == {"ca.crt", "tls.crt", "tls.key", "job.json"}
    assert child(NETWORK_POLICIES, "digits-trimtab")["spec"]["policyTypes"] == ["Ingress"]
    handed = json.loads(base64.b64decode(files["job.json"]))
    assert set(handed["spec"]) == {"workers", "template"}, "what is as by default is left out"
    assert [pod["spec"]["hostname"] for pod in pods] == ["digits-0", "digits-1", "digits-2"]


def test_pods_have_the_pull_secrets_of_the_default_account_and_no_token(bench):
    accounts, secrets = SERVICE_ACCOUNTS, [{"name": "registry"}]
    eventually(lambda: bench.api.get(accounts, bench.namespace, "default"), "there is a default account")
    bench.api.merge(accounts, bench.namespace, "default", {"imagePullSecrets": secrets})
    bench.create("digits")
    for pod in bench.wait_for_pods("digits"):
        assert (pod["spec"]["serviceAccountName"], pod["spec"]["imagePullSecrets"]) == ("default", secrets)
        assert not [each["name"] for each in pod["spec"]["volumes"] if "projected" in each]
        assert not any(
            "serviceaccount" in mount["mountPath"] for each in containers(pod) for mount in each["volumeMounts"]
        )
    account = f"--as=system:serviceaccount:{bench.namespace}:digits-trimtab"

    def may(verb, what):
        asked = bench.control_plane.kubectl("auth", "can-i", verb, what, account, f"--namespace={bench.namespace}")
        return asked.stdout.strip()

    kinds = ("trainingjobs.trimtab.dev", "jobs.batch", "pods", "secrets", "services", "events")
    assert {may(verb, kind) for verb in ("get", "create") for kind in kinds} == {"no"}


def containers(pod):
    return [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]


def test_workers_become_ready_and_the_status_says_so(bench):
    bench.create("digits")
    pods = bench.wait_for_pods("digits")
    bench.play_running(pods[0])
    eventually(lambda: bench.status("digits").get("workers", {}).get("ready") == 1, "one worker is counted as ready")
    assert bench.status("digits")["state"] == "Starting"
    bench.play_running(pods[1])
    eventually(lambda: bench.condition("digits", "Ready")["reason"] == "WaitingForTraining", "both are ready")
    status = bench.status("digits")
    assert (status["state"], bench.condition("digits", "Ready")["status"]) == ("Starting", "False")
    assert status["message"] == "2 workers are ready, no step is done yet: rank 0 has not reported"
    assert bench.condition("digits", "Started")["reason"] == "WorkersReady"
    status = bench.play_training("digits")
    assert (status["state"], status["message"], status["observedGeneration"]) == ("Running", "2 workers train", 1)
    assert bench.condition("digits", "Ready")["status"] == "True"
    assert bench.events("digits") == {}


@pytest.mark.slow
def test_a_job_that_runs_and_whose_rank_0_cannot_be_heard_says_why(bench):
    """Nobody runs these pods, so nothing knows rank 0's name: as where a network keeps the operator from it."""
    bench.start("digits")
    told = "2 workers train; rank 0 has not reported for 60 s: "
    eventually(lambda: bench.status("digits")["message"].startswith(told), "the status says so", 150)
    assert f"digits-0.digits.{bench.namespace}.svc" in bench.status("digits")["message"]
    assert bench.condition("digits", "Ready")["message"] == bench.status("digits")["message"]
    assert bench.status("digits")["state"] == "Running"


def test_a_job_whose_pods_end_well_has_succeeded(bench):
    pods = bench.start("digits")
    bench.play_succeeded(*pods)
    status = bench.wait_for_state("digits", "Succeeded")
    assert status["completionTime"] >= status["startTime"]
    assert bench.condition("digits", "Succeeded")["status"] == "True"
    assert bench.condition("digits", "Failed")["status"] == "False"
    assert "Succeeded" in bench.events("digits")


def test_when_one_worker_fails_all_ranks_restart_together_and_the_event_says_why(bench):
    pods = bench.start("digits")
    bench.play_failed(pods[1], exit_code=1, message="ValueError: no such file")
    again = bench.wait_for_pods("digits", attempt=1)
    assert not {each["metadata"]["uid"] for each in pods} & {each["metadata"]["uid"] for each in again}
    assert bench.pods("digits", attempt=0) == []
    status = bench.status("digits")
    assert (status["restarts"], status["disruptions"]) == (1, 0)
    assert "worker 1 failed: container trainer ended with exit code 1" in bench.events("digits")["Restarting"]
    assert "ValueError: no such file" in status["lastRestartReason"]
    bench.play_running(*again)
    bench.play_training("digits")


def test_restarts_that_follow_each_other_fast_wait_and_end_where_none_reaches_a_step(bench):
    bench.create("digits", maxRestarts=100)
    no_step = "rank 0 ended with exit code 3 before its first step; it last said"
    for attempt in (0, 1):
        pods = bench.wait_for_pods("digits", attempt=attempt)
        bench.play_failed(pods[0], exit_code=3, message=no_step)
    again = bench.wait_for_pods("digits", attempt=2)
    status = bench.status("digits")
    assert status["restarts"] == 2
    assert min(each["metadata"]["creationTimestamp"] for each in again) >= status["lastRestartTime"]
    assert status["lastRestartTime"] > max(each["metadata"]["creationTimestamp"] for each in pods)
    bench.play_failed(again[0], exit_code=3, message=no_step)
    status = bench.wait_for_state("digits", "Failed")
    assert (status["restarts"], status["restartsWithoutStep"]) == (2, 2)
    assert bench.condition("digits", "Failed")["reason"] == "RestartsReachNoStep"
    assert "the last 2 of which failed before their first step" in status["message"]


def test_after_max_restarts_a_failure_is_final(bench):
    bench.create("digits", maxRestarts=1)
    for attempt in (0, 1):
        pods = bench.wait_for_pods("digits", attempt=attempt)
        bench.play_failed(pods[0], exit_code=3)
    status = bench.wait_for_state("digits", "Failed")
    assert status["restarts"] == 1
    assert "exit code 3 (after 1 restarts, the most that maxRestarts allows)" in status["message"]
    assert bench.condition("digits", "Failed")["reason"] == "Error"


def test_under_never_the_first_failure_is_final(bench):
    pods = bench.start("digits", restartPolicy="Never")
    bench.play_failed(pods[0])
    assert "restartPolicy is Never" in bench.wait_for_state("digits", "Failed")["message"]


def test_a_pod_that_the_cluster_takes_away_restarts_all_and_is_not_counted(bench):
    pods = bench.start("digits", maxRestarts=0)
    bench.play_disrupted(pods[0])
    bench.wait_for_pods("digits", attempt=1)
    status = bench.status("digits")
    assert (status["restarts"], status["disruptions"]) == (1, 1)
    assert "worker 0 was taken away: EvictionByEvictionAPI: drained" in bench.events("digits")["Restarting"]


def test_a_suspended_job_has_no_pods_until_it_resumes(bench):
    bench.create("digits", suspend=True)
    bench.wait_for_state("digits", "Suspended")
    assert bench.pods("digits") == []
    assert "startTime" not in bench.status("digits")
    bench.change("digits", suspend=False)
    pods = bench.wait_for_pods("digits")
    bench.play_running(*pods)
    bench.play_training("digits")
    bench.change("digits", suspend=True)
    bench.wait_for_state("digits", "Suspended")
    eventually(lambda: bench.pods("digits") == [], "the pods end")
    assert bench.status("digits")["restarts"] == 0
    assert bench.condition("digits", "Suspended")["status"] == "True"


QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}


def enqueue(bench, name, **spec):
    """A job that Kueue is to look after."""
    manifest = bench.manifest(name, **spec)
    manifest["metadata"]["labels"] = QUEUE
    bench.api.create(TRAINING_JOBS, manifest)


def suspend_child(bench, name, suspended):
    """As Kueue does: it admits a Job, or preempts it."""
    bench.api.merge(JOBS, bench.namespace, name, {"spec": {"suspend": suspended}})


def test_a_job_in_a_queue_waits_for_kueue_and_runs_from_then_on(bench):
    enqueue(bench, "digits")
    eventually(lambda: bench.status("digits").get("message") == "waits for its queue to admit it", "the status says so")
    assert QUEUE.items() <= bench.child("digits")["metadata"]["labels"].items()
    assert bench.child("digits")["spec"]["suspend"] is True
    assert bench.pods("digits") == []
    for _ in range(2):  # admitted, then preempted, then admitted again
        suspend_child(bench, "digits", False)
        bench.play_running(*bench.wait_for_pods("digits"))
        bench.play_training("digits")
        bench.change("digits", maxRestarts=bench.job("digits")["spec"]["maxRestarts"] + 1)  # has it looked at anew
        eventually(
            lambda: bench.status("digits")["observedGeneration"] == bench.job("digits")["metadata"]["generation"],
            "the operator has looked again",
        )
        assert bench.child("digits")["spec"]["suspend"] is False, "nobody suspends what Kueue has admitted"
        suspend_child(bench, "digits", True)
        bench.wait_for_state("digits", "Suspended")
        eventually(lambda: bench.pods("digits") == [], "the pods end")
    assert bench.status("digits")["restarts"] == 0


def test_a_queue_that_the_job_was_given_when_it_ran_already_takes_nothing_from_suspend(bench):
    """Kueue goes by the Job's labels, which have no queue."""
    bench.start("digits")
    bench.api.merge(TRAINING_JOBS, bench.namespace, "digits", {"metadata": {"labels": QUEUE}})
    bench.change("digits", suspend=True)
    bench.wait_for_state("digits", "Suspended")


def test_a_job_in_a_queue_that_says_suspend_runs_when_the_queue_admits_it(bench):
    enqueue(bench, "digits", suspend=True)
    eventually(lambda: bench.status("digits").get("message") == "waits for its queue to admit it", "the status says so")
    assert bench.child("digits")["spec"]["suspend"] is True
    suspend_child(bench, "digits", False)
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.play_training("digits")
    bench.change("digits", maxRestarts=7)  # has it looked at anew
    eventually(
        lambda: bench.status("digits")["observedGeneration"] == bench.job("digits")["metadata"]["generation"],
        "the operator has looked again",
    )
    assert bench.child("digits")["spec"]["suspend"] is False, "nobody suspends what Kueue has admitted"


def test_a_job_that_others_suspend_is_theirs_to_resume(bench):
    bench.start("digits")
    suspend_child(bench, "digits", True)
    bench.wait_for_state("digits", "Suspended")
    assert bench.condition("digits", "Suspended")["reason"] == "SuspendedByOther"
    bench.control_plane.kubectl(
        "label", "job", "digits", f"--namespace={bench.namespace}", "kueue.x-k8s.io/queue-name=q"
    )
    eventually(lambda: bench.status("digits")["message"] == "waits for its queue to admit it", "the status says so")
    assert bench.child("digits")["spec"]["suspend"] is True
    suspend_child(bench, "digits", False)
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.play_training("digits")


def test_a_job_past_its_deadline_has_failed_and_its_pods_are_gone(bench):
    bench.create("digits", activeDeadlineSeconds=2)
    bench.wait_for_pods("digits")
    status = bench.wait_for_state("digits", "Failed")
    assert status["message"] == "ran longer than spec.activeDeadlineSeconds (2 s)"
    assert bench.condition("digits", "Failed")["reason"] == "DeadlineExceeded"
    eventually(lambda: bench.pods("digits") == [], "the pods end")


def test_a_finished_job_is_deleted_when_its_time_is_up(bench):
    pods = bench.start("digits", ttlSecondsAfterFinished=2)
    bench.play_succeeded(*pods)
    eventually(lambda: not bench.job("digits"), "the job is deleted")
    eventually(lambda: not bench.leftovers(), "nothing is left of it")


def test_a_deleted_job_leaves_nothing(bench):
    bench.start("digits")
    uid = bench.job("digits")["metadata"]["uid"]
    bench.api.delete(TRAINING_JOBS, bench.namespace, "digits", uid)
    eventually(lambda: not bench.job("digits"), "the job is deleted")
    eventually(lambda: not bench.leftovers(), "nothing is left of it")


def test_a_job_of_the_same_name_starts_afresh(bench):
    bench.start("digits")
    uid = bench.job("digits")["metadata"]["uid"]
    bench.control_plane.kubectl("delete", "tj", "digits", f"--namespace={bench.namespace}", "--cascade=background")
    bench.create("digits")
    new = bench.job("digits")["metadata"]["uid"]
    assert new != uid

    def is_all_new():
        owners = [(bench.child("digits") or {}).get("metadata", {}).get("ownerReferences", [{}])[0].get("uid")]
        secret = bench.api.get(SECRETS, bench.namespace, "digits-trimtab") or {"metadata": {"ownerReferences": [{}]}}
        return [*owners, secret["metadata"]["ownerReferences"][0].get("uid")] == [new, new]

    eventually(is_all_new, "every child is the new job's")


def test_a_job_that_another_manages_is_left_alone(bench):
    bench.create("other", managedBy="example.com/other")
    bench.start("digits")  # by now the other would have been seen to
    assert bench.child("other") is None
    assert bench.status("other") == {}


def test_a_deleted_job_child_is_made_again(bench):
    bench.start("digits")
    bench.control_plane.kubectl("delete", "job", "digits", f"--namespace={bench.namespace}", "--wait=false")
    eventually(lambda: bench.status("digits")["state"] == "Starting", "it starts again, and does not train")
    bench.play_running(*bench.wait_for_pods("digits"))
    bench.play_training("digits")


def test_pods_on_the_hosts_network_ask_the_clusters_dns_and_hold_their_ports_on_the_host(bench):
    manifest = bench.manifest("digits")
    pod = manifest["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    pod["containers"][0]["ports"] = [{"name": "status", "containerPort": 9000}]
    bench.api.create(TRAINING_JOBS, manifest)
    for made in bench.wait_for_pods("digits"):
        assert made["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
        held = {port["hostPort"] for each in containers(made) for port in each["ports"]}
        assert held == {9000, 8471, 8472, 29400, 29402, 29500}


def test_an_image_that_does_not_exist_shows_in_status(bench):
    bench.create("digits")
    pods = bench.wait_for_pods("digits")
    bench.play_waiting(pods[1], "ImagePullBackOff", 'Back-off pulling image "trainer.test/trainer:1"')
    eventually(
        lambda: bench.condition("digits", "Started").get("reason") == "ImagePullBackOff", "the condition says so"
    )
    assert "worker 1 cannot start container trainer: ImagePullBackOff" in bench.status("digits")["message"]
    assert "ImagePullBackOff" in bench.events("digits")


def test_a_pod_that_cannot_be_scheduled_shows_in_status(bench):
    bench.create("digits")
    pods = bench.wait_for_pods("digits")
    bench.play_unschedulable(pods[0], "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    eventually(lambda: bench.condition("digits", "Started").get("reason") == "Unschedulable", "the condition says so")
    assert "worker 0 cannot be placed: 0/3 nodes are available" in bench.status("digits")["message"]


def test_a_pod_that_cannot_be_scheduled_after_a_restart_shows_too(bench):
    bench.play_failed(bench.start("digits")[0])
    pods = bench.wait_for_pods("digits", attempt=1)
    bench.play_unschedulable(pods[1], "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    eventually(lambda: bench.condition("digits", "Ready").get("reason") == "Unschedulable", "the condition says so")
    assert bench.condition("digits", "Started")["status"] == "True"
    eventually(lambda: "worker 1 cannot be placed" in bench.events("digits").get("Unschedulable", ""), "an event too")


def test_a_worker_killed_for_memory_shows_in_status(bench):
    pods = bench.start("digits", maxRestarts=0)
    bench.play_failed(pods[1], exit_code=137, reason="OOMKilled")
    assert "worker 1 was killed for memory" in bench.wait_for_state("digits", "Failed")["message"]
    assert bench.condition("digits", "Failed")["reason"] == "OOMKilled"


def test_a_template_that_kubernetes_refuses_is_a_failure_that_names_the_field(bench):
    manifest = bench.manifest("digits")
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "-1"}}
    bench.api.create(TRAINING_JOBS, manifest)
    message = bench.wait_for_state("digits", "Failed")["message"]
    assert "spec.template.spec.containers[0].resources.limits" in message
    assert message.endswith("delete the job, mend its file and create it anew")


def test_a_quota_that_is_used_up_is_told(bench):
    quota = (
        '{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, '
        '"spec": {"hard": {"count/services": "0"}}}'
    )
    bench.control_plane.kubectl("apply", f"--namespace={bench.namespace}", "-f", "-", stdin=quota)
    eventually(
        lambda: (
            "services"
            in bench.control_plane.kubectl(
                "get", "quota", "none", f"--namespace={bench.namespace}", "-o", "jsonpath={.status.used}"
            ).stdout
        ),
        "the quota is in force",
    )
    bench.create("digits")
    eventually(lambda: "exceeded quota" in bench.status("digits").get("message", ""), "the status says so")
    assert bench.condition("digits", "Started")["reason"] == "Blocked"
