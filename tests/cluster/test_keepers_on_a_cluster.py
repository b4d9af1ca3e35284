"""The keepers of checkpoints in memory: what a real API server and StatefulSet controller make of them."""

from __future__ import annotations

import pytest
from trimtab_operator.kube.resources import PODS, STATEFUL_SETS, TRAINING_JOBS
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

MEMORY = {"path": "/mnt/c", "inMemory": "neighbour"}


def keepers(bench):
    """Names and uids of the keepers' pods."""
    selector = "trimtab.dev/component=keeper"
    pods = bench.api.list(PODS, bench.namespace, labelSelector=selector)["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def test_keepers_outlive_attempts_follow_the_number_of_workers_and_go_with_the_job(bench):
    pods = bench.start("digits", checkpoint=MEMORY)
    eventually(lambda: sorted(keepers(bench)) == ["digits-keeper-0", "digits-keeper-1"], "there are two keepers")
    before = keepers(bench)
    bench.play_failed(pods[1])
    bench.wait_for_pods("digits", 2, attempt=1)
    assert keepers(bench) == before
    bench.change("digits", workers=3)
    eventually(lambda: len(keepers(bench)) == 3, "there are three keepers")
    assert before.items() <= keepers(bench).items()
    bench.wait_for_pods("digits", 3, attempt=2)
    bench.api.delete(TRAINING_JOBS, bench.namespace, "digits", bench.job("digits")["metadata"]["uid"])
    eventually(lambda: keepers(bench) == {}, "the keepers have gone")


def test_keepers_go_when_the_job_has_ended(bench):
    pods = bench.start("digits", checkpoint={"inMemory": "neighbour"})
    eventually(lambda: len(keepers(bench)) == 2, "there are two keepers")
    bench.play_succeeded(*pods)
    bench.wait_for_state("digits", "Succeeded")
    eventually(lambda: keepers(bench) == {}, "the keepers have gone")
    gone = "their StatefulSet has gone, after its pods"
    eventually(lambda: bench.api.get(STATEFUL_SETS, bench.namespace, "digits-keeper") is None, gone)


def test_workers_cannot_become_fewer_with_checkpoints_in_memory_alone(bench):
    bench.start("digits", checkpoint={"inMemory": "neighbour"})
    with pytest.raises(Exception, match="cannot become fewer where checkpoints are in the workers' memory alone"):
        bench.change("digits", workers=1)
