"""The keepers of a job's checkpoints in memory: one for each worker, apart from each other, gone when the job ends."""

import pytest
from fixtures import SETTINGS, UID, job, observed
from trimtab_api.names import keeper_host, keepers_name
from trimtab_operator.children.keepers import keeper_addresses, keepers
from trimtab_operator.children.network import network_policy
from trimtab_operator.children.pod import pod_template
from trimtab_operator.reconcile.keepers import EndedKeepers

MEMORY = {"inMemory": "neighbour", "inMemoryBytes": "1GB"}


def container_of(manifest):
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return container


def variables(container):
    return {each["name"]: each.get("value") for each in container["env"]}


def test_there_is_a_keeper_for_each_worker_under_the_name_that_trainers_are_told():
    service, stateful_set = keepers(job(checkpoint=MEMORY), "team", UID)
    name = stateful_set["metadata"]["name"]
    assert (name, service["metadata"]["name"], stateful_set["spec"]["serviceName"]) == ("digits-keeper",) * 3
    assert stateful_set["spec"]["replicas"] == 2
    addresses = keeper_addresses(job(checkpoint=MEMORY), "team")
    assert addresses == "digits-keeper-0.digits-keeper.team.svc:8473,digits-keeper-1.digits-keeper.team.svc:8473"
    pod = pod_template(job(checkpoint=MEMORY), "team", 0, SETTINGS)["spec"]
    (trainer,) = (each for each in pod["containers"] if each["name"] == "trainer")
    assert variables(trainer)["TRIMTAB_KEEPERS"] == addresses


def test_keepers_belong_to_the_job_but_are_no_workers_of_it():
    service, stateful_set = keepers(job(checkpoint=MEMORY), "team", UID)
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    policy = network_policy(job(checkpoint=MEMORY), "team", UID, SETTINGS)
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert "trimtab.dev/attempt" not in labels
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in (service, stateful_set)} == {UID}


def test_a_keeper_is_bounded_and_may_do_nothing_else():
    _, stateful_set = keepers(job(checkpoint=MEMORY), "team", UID)
    pod, container = stateful_set["spec"]["template"]["spec"], container_of(stateful_set)
    assert container["args"][:4] == ["--listen", "0.0.0.0:8473", "--bytes", "1000000000B"]
    resources = container["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == str(10**9 + 2**28)
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


def test_keepers_run_where_the_template_lets_workers_run():
    asked = job(checkpoint=MEMORY)
    asked.spec.template["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    _, stateful_set = keepers(asked, "team", UID)
    assert stateful_set["spec"]["template"]["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


@pytest.mark.parametrize("checkpoint", [None, {"path": "/c"}])
def test_a_job_without_copies_in_memory_has_no_keepers(checkpoint):
    assert keepers(job(checkpoint=checkpoint), "team", UID) == []
    pod = pod_template(job(checkpoint=checkpoint), "team", 0, SETTINGS)["spec"]
    assert all("TRIMTAB_KEEPERS" not in variables(each) for each in pod["containers"])


@pytest.mark.parametrize("name", ["a", "a" * 45, "a" * 46, "a" * 52])
def test_names_of_keepers_leave_room_for_the_hash_in_their_pods_labels(name):
    assert len(keepers_name(name)) <= 52
    assert keeper_host(name, "team", "*") == f"*.{keepers_name(name)}.team.svc"
    assert keepers_name("a" * 51 + "b") != keepers_name("a" * 52)


class OneStatefulSet:
    """An API server with the keepers of one owner."""

    def __init__(self, owner):
        self.owner, self.asked, self.deleted = owner, 0, []

    def get(self, resource, namespace, name):
        self.asked += 1
        return {"metadata": {"uid": "sts", "ownerReferences": [{"controller": True, "uid": self.owner}]}}

    def delete(self, resource, namespace, name, uid):
        self.deleted.append((resource.kind, name, uid))


ENDED = {"state": "Succeeded", "observedGeneration": 1}


@pytest.mark.parametrize(
    ("status", "checkpoint", "owner", "is_removed"),
    [
        (ENDED, MEMORY, UID, True),
        (ENDED, MEMORY, "another", False),
        (ENDED, {"path": "/c"}, UID, False),
        ({"state": "Running", "observedGeneration": 1}, MEMORY, UID, False),
    ],
)
def test_the_keepers_of_a_finished_job_and_no_others_are_removed_once(status, checkpoint, owner, is_removed):
    api = OneStatefulSet(owner)
    ended = EndedKeepers(api)
    seen = observed(status=status, spec={"checkpoint": checkpoint})
    for _ in range(2):
        ended.remove(seen)
    assert api.deleted == ([("StatefulSet", "digits-keeper", "sts")] if is_removed else [])
    assert api.asked <= 1
