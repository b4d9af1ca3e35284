"""What becomes of an object that has a child's name already: one of the job's is kept, another's is never touched."""

import pytest
from fixtures import NOW, SETTINGS, UID, job, observed
from trimtab_operator.children.network import network_policy, service
from trimtab_operator.children.secret import secret
from trimtab_operator.reconcile.apply import sync_children


class OneNamespace:
    """Objects by kind; notes what is written."""

    def __init__(self, *objects):
        self.objects, self.created, self.applied = {each["kind"]: each for each in objects}, [], []

    def get(self, resource, namespace, name):
        return self.objects.get(resource.kind)

    def create(self, resource, manifest):
        self.created.append(resource.kind)

    def apply(self, resource, manifest):
        self.applied.append(resource.kind)


def children():
    return service(job(), "team", UID, 0), network_policy(job(), "team", UID, SETTINGS), secret(job(), "team", UID, NOW)


def seen_before():
    return observed(status={"observedGeneration": 1})


def test_children_that_are_there_are_applied_again_but_for_the_certificates():
    api = OneNamespace(*children())
    assert sync_children(api, seen_before(), SETTINGS) is None
    assert api.created == []
    assert api.applied == ["Service", "NetworkPolicy"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_object_of_somebody_else_is_never_written_to(number):
    objects = children()
    objects[number]["metadata"]["ownerReferences"][0]["uid"] = "another-uid"
    api = OneNamespace(*objects)
    kind = objects[number]["kind"]
    assert f"waits for the {kind} " in sync_children(api, seen_before(), SETTINGS)
    assert kind not in api.applied
    assert api.created == []
