"""What a pod tells, in a user's words."""

import copy

import pytest
from trimtab_operator.decisions.pods import Pod, trim_pod


def raw(phase="Running", **status):
    return {
        "metadata": {
            "name": "digits-1-abcde",
            "namespace": "team",
            "uid": "u",
            "annotations": {"a": "b"},
            "managedFields": [{}],
            "ownerReferences": [{"kind": "Job", "name": "digits", "uid": "child-uid", "controller": True}],
            "labels": {
                "trimtab.dev/job-name": "digits",
                "batch.kubernetes.io/job-completion-index": "1",
                "team": "vision",
            },
        },
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {"phase": phase, "podIP": "10.0.0.1", **status},
    }


def container(name="trainer", **state):
    return {"name": name, "state": state}


def ended(code, reason="Error", message="", at="2026-01-01T00:00:00Z", name="trainer"):
    return container(name, terminated={"exitCode": code, "reason": reason, "message": message, "finishedAt": at})


@pytest.mark.parametrize(
    ("container", "says_so"),
    [
        (ended(1, message="rank 0 ended with exit code 1 before its first step; it last said\n  torn"), True),
        (ended(2, message="nothing was started: argv: 'pyton': no such program in this image\n"), True),
        (ended(128, reason="StartError", message='exec: "trimtab": executable file not found'), True),
        (ended(1, message="rank 0 ended with exit code 1; it last said before its first step"), False),
        (ended(1, message="rank 0 ended with exit code 1; it last said\n  before its first step"), False),
        (ended(1, message="rank 0 ended with exit code 1 before its first step", name="helper"), False),
        (ended(137, reason="OOMKilled"), False),
    ],
)
def test_a_worker_that_failed_before_its_first_step_says_so(container, says_so):
    whole = raw("Failed", containerStatuses=[container])
    shrunk = copy.deepcopy(whole)
    trim_pod(shrunk)
    assert [Pod.read(each).has_no_step for each in (whole, shrunk)] == [says_so, says_so]


def test_a_pod_that_runs_has_nothing_to_say():
    pod = Pod.read(raw())
    assert (pod.worker, pod.owner_uid, pod.phase) == (1, "child-uid", "Running")
    assert (pod.disruption, pod.failure, pod.blocking_reason) == (None, None, None)


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            {"containerStatuses": [ended(1, message="Traceback\nValueError: x")]},
            "Error",
            "worker 1 failed: container trainer ended with exit code 1; last it said: Traceback\nValueError: x",
        ),
        (
            {"containerStatuses": [ended(137, reason="OOMKilled")]},
            "OOMKilled",
            "worker 1 was killed for memory in container trainer: it needed more memory than its limit; raise "
            "resources.limits.memory or use less",
        ),
        (
            {
                "containerStatuses": [
                    ended(7, at="2026-01-01T00:00:00Z", name="helper"),
                    ended(1, at="2026-01-01T00:00:09Z"),
                ]
            },
            "Error",
            "worker 1 failed: container trainer ended with exit code 1",
        ),
        (
            {"initContainerStatuses": [ended(3, name="netmon")], "containerStatuses": [ended(0)]},
            "Error",
            "worker 1 failed: container netmon ended with exit code 3",
        ),
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "Evicted",
            "worker 1 failed: The node was low on resource: memory.",
        ),
        ({}, "Failed", "worker 1 failed: Failed"),
    ],
)
def test_a_failed_pod_says_why(status, reason, message):
    failure = Pod.read(raw("Failed", **status)).failure
    assert (failure.reason, failure.message) == (reason, message)


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ({}, "PodDeleted", "the pod of worker 1 was deleted before it ended, by whom is unknown"),
        ({"reason": "NodeLost", "message": "its node is gone"}, "NodeLost", "worker 1 failed: its node is gone"),
        (
            {"containerStatuses": [ended(1)]},
            "Error",
            "worker 1 failed: container trainer ended with exit code 1",
        ),
    ],
)
def test_a_pod_that_was_deleted_and_says_nothing_else_says_that(status, reason, message):
    pod = raw("Failed", **status)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    failure = Pod.read(pod).failure
    assert (failure.reason, failure.message) == (reason, message)


def test_a_failed_pod_says_when_and_with_which_exit_code():
    pod = Pod.read(raw("Failed", containerStatuses=[ended(137)]))
    assert (pod.failed_at, pod.exit_code) == ("2026-01-01T00:00:00Z", 137)
    assert Pod.read(raw("Failed")).exit_code == 0


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            {"containerStatuses": [container(waiting={"reason": "ErrImagePull", "message": "no such image"})]},
            "ErrImagePull",
            "worker 1 cannot start container trainer: ErrImagePull: no such image",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
                ]
            },
            "Unschedulable",
            "worker 1 cannot be placed: 0/3 nodes",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
            "SchedulingGated",
            "worker 1 is held back by its schedulingGates; whoever set them lifts them",
        ),
    ],
)
def test_a_pod_that_cannot_start_says_why(status, reason, message):
    blocking_reason = Pod.read(raw("Pending", **status)).blocking_reason
    assert (blocking_reason.reason, blocking_reason.message) == (reason, message)


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
        {"containerStatuses": [container(waiting={"reason": "PodInitializing"})]},
        {"conditions": [{"type": "PodScheduled", "status": "True"}]},
        {},
    ],
)
def test_a_pod_that_is_only_slow_has_no_obstacle(status):
    assert Pod.read(raw("Pending", **status)).blocking_reason is None


MISTAKE = "INFO starts\ntrimtab-netmon: --interface: 'ib0': is no network device here\n"
WAITS = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(
    "states",
    [
        {"state": {"waiting": WAITS}, "lastState": {"terminated": {"exitCode": 2, "message": MISTAKE}}},
        {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 2, "message": MISTAKE}}},
        {"state": {"terminated": {"exitCode": 2, "message": MISTAKE}}},
    ],
    ids=["waits", "runs once more", "has just ended"],
)
def test_a_sidecar_that_ends_again_and_again_is_told_by_its_own_words(phase, states):
    monitor = {"name": "netmon", "ready": False, "restartCount": 3, **states}
    said = "trimtab-netmon: --interface: 'ib0': is no network device here"
    told = f"container netmon of worker 1 ends with exit code 2 again and again; last it said: {said}"
    blocking_reason = Pod.read(raw(phase, initContainerStatuses=[monitor])).blocking_reason
    assert (blocking_reason.reason, blocking_reason.message) == ("CrashLoopBackOff", told)
    well = monitor | {"ready": True, "state": {"running": {}}}
    assert Pod.read(raw(phase, initContainerStatuses=[well])).blocking_reason is None


CREATING = container("netmon", waiting={"reason": "PodInitializing"})
NETWORKED = {"type": "PodReadyToStartContainers", "status": "True"}


@pytest.mark.parametrize(
    ("phase", "status", "is_mounting"),
    [
        ("Pending", {"containerStatuses": [container(waiting={"reason": "ContainerCreating"})]}, True),
        ("Pending", {"initContainerStatuses": [CREATING], "conditions": [{**NETWORKED, "status": "False"}]}, True),
        ("Pending", {"initContainerStatuses": [CREATING], "conditions": [NETWORKED]}, False),
        (
            "Pending",
            {"initContainerStatuses": [container("netmon", running={})], "containerStatuses": [CREATING]},
            False,
        ),
        ("Pending", {"containerStatuses": [container(waiting={"reason": "ErrImagePull"})]}, False),
        ("Pending", {}, False),
        ("Running", {"containerStatuses": [container(running={})]}, False),
    ],
)
def test_a_pod_of_which_nothing_has_begun_waits_for_its_volumes(phase, status, is_mounting):
    whole = raw(phase, **status)
    small = copy.deepcopy(whole)
    trim_pod(small)
    for each in (whole, small):
        assert (Pod.read(each).uid, Pod.read(each).is_mounting) == ("u", is_mounting)


def test_a_pod_that_ran_and_is_not_ready_is_unready_until_its_trainer_has_ended():
    unready = {"type": "Ready", "status": "False"}
    running = container(running={})
    assert Pod.read(raw(conditions=[unready], containerStatuses=[running])).is_unready
    assert not Pod.read(raw(conditions=[unready], containerStatuses=[ended(0)])).is_unready
    assert not Pod.read(raw(conditions=[{"type": "Ready", "status": "True"}], containerStatuses=[running])).is_unready
    assert not Pod.read(raw("Pending", conditions=[unready])).is_unready


def test_a_pod_that_is_deleted_says_where_it_is_and_when_it_should_end():
    pod = raw()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    pod["spec"]["nodeName"] = "far-away"
    shrunk = copy.deepcopy(pod)
    trim_pod(shrunk)
    for each in (pod, shrunk):
        assert (Pod.read(each).node, Pod.read(each).to_end_by) == ("far-away", "2026-01-01T00:00:30Z")


def test_a_pod_that_the_cluster_took_away_says_so():
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for another"}
    disruption = Pod.read(raw("Failed", conditions=[taken])).disruption
    assert disruption.message == "worker 1 was taken away: PreemptionByScheduler: for another"


@pytest.mark.parametrize("index", ["", "one", "-1", "1.5"])
def test_labels_that_make_no_sense_are_read_all_the_same(index):
    strange = raw()
    strange["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = index
    assert Pod.read(strange).worker == 0


def test_a_pod_that_no_job_made_has_no_owner():
    stray = raw()
    for owners in ([], [{"uid": "child-uid"}]):
        stray["metadata"]["ownerReferences"] = owners
        assert Pod.read(stray).owner_uid == ""


def test_a_pod_cut_down_tells_the_same_in_less():
    whole = raw("Failed", containerStatuses=[ended(1, message="words")])
    small = copy.deepcopy(whole)
    trim_pod(small)
    assert Pod.read(small) == Pod.read(whole)
    assert len(str(small)) < 0.8 * len(str(whole))


def test_what_a_container_last_said_does_not_move_a_terminals_cursor():
    status = {"containerStatuses": [ended(1, message="a\n\x1b[2Jb")]}
    assert Pod.read(raw("Failed", **status)).failure.message.endswith("last it said: a\n�[2Jb")


@pytest.mark.parametrize(
    ("reason", "message", "is_for_memory"),
    [
        ("TerminationByKubelet", "The node was low on resource: memory. Threshold quantity: 100Mi", True),
        ("TerminationByKubelet", "The node was low on resource: ephemeral-storage.", False),
        ("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.", False),
        ("EvictionByEvictionAPI", "The node was low on resource: memory.", False),
    ],
)
def test_an_eviction_for_want_of_memory_is_known_as_such(reason, message, is_for_memory):
    taken = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    metadata = {"labels": {"batch.kubernetes.io/job-completion-index": "1"}}
    status = {"phase": "Failed", "reason": "Evicted", "conditions": [taken]}
    assert Pod.read({"metadata": metadata, "status": status}).is_memory_eviction is is_for_memory


@pytest.mark.parametrize(
    ("grace", "deleted_at"),
    [(None, "2026-01-01T00:01:00Z"), (60, "2026-01-01T00:00:00Z"), (10**12, "2026-01-01T00:01:00Z")],
)
def test_a_deleted_pod_of_any_grace_is_read(grace, deleted_at):
    pod = raw()
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": grace}
    assert Pod.read(pod).deleted_at == deleted_at
