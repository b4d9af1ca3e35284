"""The definition of TrainingJob, asked of a real API server with kubectl: names, columns, and who may make children."""

from __future__ import annotations

import json

import operator_role
import pytest
from trimtab_operator.kube.resources import JOBS, TRAINING_JOBS

pytestmark = pytest.mark.controlplane

COLUMNS = ["NAME", "STATE", "WORKERS", "RATIO", "COLLECTIVE", "LATENCY", "BANDWIDTH", "STEP", "AGE"]
PLAN = {"version": 2, "name": "0.01/all-gather", "ratio": "0.01", "collective": "all-gather", "reason": "r"}
STATUS = {
    "state": "Running",
    "step": 120,
    "plan": {**PLAN, "adoptedAtStep": 20},
    "network": {
        "latency": "2.1ms",
        "bandwidth": "96Mbps",
        "bandwidthBytesPerSecond": 12_000_000,
        "bestBandwidthBytesPerSecond": 12_000_000,
        "stale": False,
    },
}


@pytest.fixture
def kubectl(namespace):
    """What kubectl prints, asked about the test's namespace."""

    def run(*arguments, stdin=None):
        done = namespace.control_plane.kubectl(*arguments, "-n", namespace.namespace, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def seen(namespace, kubectl):
    """A job that no operator looks after, with a status."""
    namespace.create("digits", managedBy="example.com/other")
    kubectl("patch", "tj", "digits", "--subresource=status", "--type=merge", f"-p={json.dumps({'status': STATUS})}")


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize("name", ["tj", "trainingjob", "trainingjobs", "trainingjobs.trimtab.dev"])
def test_columns_show_state_plan_network_and_step_by_every_name(kubectl, name):
    heads, row = kubectl("get", name).splitlines()
    assert heads.split() == COLUMNS
    assert row.split()[:-1] == ["digits", "Running", "2", "0.01", "all-gather", "2.1ms", "96Mbps", "120"]


@pytest.mark.usefixtures("seen")
def test_get_all_lists_training_jobs(kubectl):
    assert "trainingjob.trimtab.dev/digits" in kubectl("get", "all", "-o", "name").split()


def test_no_column_depends_on_the_order_of_conditions(kubectl):
    path = "jsonpath={.spec.versions[*].additionalPrinterColumns[*].jsonPath}"
    assert "conditions" not in kubectl("get", "crd", "trainingjobs.trimtab.dev", "-o", path)


@pytest.mark.usefixtures("seen")
def test_who_writes_the_spec_does_not_write_the_status_and_the_other_way_round(namespace, kubectl):
    kubectl("patch", "tj", "digits", "--type=merge", '-p={"status": {"state": "Failed"}, "spec": {"maxRestarts": 7}}')
    kubectl("patch", "tj", "digits", "--subresource=status", "--type=merge", '-p={"spec": {"maxRestarts": 8}}')
    job = namespace.job("digits")
    assert (job["status"]["state"], job["spec"]["maxRestarts"], job["metadata"]["generation"]) == ("Running", 7, 2)


@pytest.fixture
def create_as(namespace, kubectl):
    """Try to create a child of a TrainingJob that blocks its owner's deletion, as a user with given rights."""
    namespace.create("digits")
    owner = {
        "apiVersion": TRAINING_JOBS.api_version,
        "kind": TRAINING_JOBS.kind,
        "name": "digits",
        "uid": namespace.job("digits")["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    child = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": "child", "ownerReferences": [owner]},
        "spec": {"template": {"spec": pod}},
    }

    def create(user, rules):
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": user}}
        kubectl("apply", "-f", "-", stdin=json.dumps({**role, "rules": rules}))
        kubectl("create", "rolebinding", user, f"--role={user}", f"--user={user}")
        arguments = ("create", "--dry-run=server", f"--as={user}", "-n", namespace.namespace, "-f", "-")
        return namespace.control_plane.kubectl(*arguments, stdin=json.dumps(child))

    return create


def test_children_that_block_their_owners_deletion_need_the_right_to_its_finalizers(create_as):
    """Where the API server enforces it (OwnerReferencesPermissionEnforcement), as the tests' does."""
    without = [each for each in operator_role.RULES if each["resources"] != ["trainingjobs/finalizers"]]
    assert len(without) == len(operator_role.RULES) - 1
    refused = create_as("without", without)
    assert refused.returncode != 0
    assert "cannot set blockOwnerDeletion" in refused.stderr
    assert create_as("with", operator_role.RULES).returncode == 0
