"""What the operator keeps of TrainingJobs and Jobs that tenants may make as large as the API server allows."""

import copy
import json
import tracemalloc

import pytest
from fake_api import fake_api
from fixtures import NOW, SETTINGS, UID, job
from kubernetes.client import ApiClient, Configuration
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.load import read_training_job
from trimtab_operator.children.job import job_manifest
from trimtab_operator.decisions.observed_state import BatchJob
from trimtab_operator.kube.api import Api
from trimtab_operator.kube.informers import Informer
from trimtab_operator.kube.pages import decode_page
from trimtab_operator.kube.resources import TRAINING_JOBS
from trimtab_operator.kube.text import write_time
from trimtab_operator.reconcile.caches import (
    MOST_SPEC_BYTES,
    MOST_WHOLE_BYTES,
    read_cached,
    trim_batch_job,
    trim_training_job,
)

LARGE = 10_000
"""Empty lists in a template: 30 KB of text, 640 KB of Python."""


def resource(name="digits", **spec):
    """A TrainingJob as the API server has it."""
    plain = job(name=name, **spec).model_dump(mode="json", by_alias=True, exclude_none=True)
    plain["metadata"] |= {"uid": UID, "generation": 1, "resourceVersion": "7", "creationTimestamp": write_time(NOW)}
    return plain


def large(name):
    """A TrainingJob whose template holds many empty lists, where Kubernetes wants an object."""
    found = resource(name)
    found["spec"]["template"]["spec"]["affinity"] = [[]] * LARGE
    found["metadata"]["labels"] = {f"l{number}": "" for number in range(500)}
    return found


def shrunk(found):
    found = copy.deepcopy(found)
    trim_training_job(found)
    return found


def test_decisions_read_the_same_of_a_job_with_and_without_its_template():
    found = resource(
        suspend=True,
        maxRestarts=3,
        activeDeadlineSeconds=60,
        progressDeadlineSeconds=9,
        ttlSecondsAfterFinished=5,
        restartPolicy="Never",
        communication={"timeout": "77s"},
    )
    whole, kept = read_training_job(found), read_cached(shrunk(found))
    assert kept.metadata.name == whole.metadata.name
    assert kept.spec.model_copy(update={"template": None}) == whole.spec.model_copy(update={"template": None})


def test_of_a_large_job_little_is_kept():
    assert len(json.dumps(shrunk(large("digits")))) < 3000


def test_a_queue_is_kept_of_the_labels():
    found = resource()
    found["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "night", "team": "vision"}
    assert shrunk(found)["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "night"}


def test_a_spec_that_is_large_beside_its_template_is_refused_by_its_size():
    found = resource()
    found["spec"]["communication"]["collectives"] = ["all-gather"] * 2000
    kept = shrunk(found)
    assert len(json.dumps(kept)) < 1000
    with pytest.raises(
        UserError, match=rf"spec: has \d+ bytes beside the template, and the operator reads {MOST_SPEC_BYTES}"
    ):
        read_cached(kept)


def test_a_template_that_is_too_large_is_known_without_asking_the_api_server_for_it():
    found = resource()
    found["spec"]["template"]["spec"]["affinity"] = [[]] * (MOST_WHOLE_BYTES // 3)
    kept = shrunk(found)
    assert len(json.dumps(kept)) < 1000
    with pytest.raises(UserError, match=rf"spec: has \d+ bytes with its template, .* {MOST_WHOLE_BYTES}; put"):
        read_cached(kept)


def test_a_job_of_the_operator_reads_the_same_from_the_cache():
    found = job_manifest(job(), "team", UID, 3, {"kueue.x-k8s.io/queue-name": "night"}, SETTINGS)
    found["metadata"] |= {"uid": "child-uid", "resourceVersion": "7", "annotations": {"trimtab.dev/suspended": "true"}}
    found["status"] = {
        "startTime": write_time(NOW),
        "active": 1,
        "failed": 1,
        "conditions": [{"type": "Failed", "status": "True", "message": "why"}],
    }
    kept = copy.deepcopy(found)
    kept["metadata"]["labels"] |= {f"l{number}": "" for number in range(500)}
    trim_batch_job(kept)
    assert BatchJob.read(kept) == BatchJob.read(found)
    assert len(json.dumps(kept)) < 2000


@pytest.mark.parametrize("text", ["", "[]", '{"items": [', '{"items": [{}', '{"items" 1}'])
def test_an_answer_that_is_no_list_is_refused(text):
    with pytest.raises(ValueError, match=r"answer|line 1"):
        decode_page(text, lambda _: None)


def test_a_page_reads_as_json_does():
    page = {"kind": "List", "items": [{"a": [1, {"b": "]}"}]}, {}], "metadata": {"resourceVersion": "7"}}
    for text in (json.dumps(page), json.dumps(page, indent=2), json.dumps(page, separators=(",", ":"))):
        assert decode_page(text, lambda _: None) == page
    assert decode_page('{"items": null}', lambda _: None) == {"items": None}


def test_fifteen_large_jobs_do_not_fill_the_memory():
    """Decoded whole they take 10 MB. At their largest, fifteen took 500 MB, all that an operator may have."""
    items = [large(f"digits-{number}") for number in range(15)]
    with fake_api() as server:
        server.body = {"items": items, "metadata": {"resourceVersion": "7"}}
        api = Api(ApiClient(Configuration(host=server.url)))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        informer = Informer(api, TRAINING_JOBS, "team", trim_training_job, lambda _: None, lambda _: None)
        informer.start()
        assert informer.wait_until_synced(60)
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        informer.stop()
    assert kept - before < 1e6, "what stays"
    assert peak - before < 5e6, "copies of the answer's text, and one object at a time"
