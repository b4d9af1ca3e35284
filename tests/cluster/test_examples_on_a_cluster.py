"""The examples, the very files, on a real API server: taken, and turned into pods by the operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trimtab_operator.kube.resources import JOBS
from workbench import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("kubernetes/*.yaml")])


@pytest.mark.parametrize("file", JOB_FILES, ids=[str(each.relative_to(EXAMPLES)) for each in JOB_FILES])
def test_the_api_server_takes_the_file_without_a_warning(namespace, file):
    taken = namespace.control_plane.kubectl("apply", "--dry-run=server", "-n", namespace.namespace, "-f", str(file))
    assert taken.returncode == 0, taken.stderr
    assert taken.stderr == ""


@pytest.fixture
def priority(bench):
    """The priority that the example asks for, which its cluster has to have."""
    manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "training"}}
    created = bench.control_plane.kubectl("create", "-f", "-", stdin=json.dumps({**manifest, "value": 1000}))
    assert created.returncode == 0, created.stderr
    yield 1000
    bench.control_plane.kubectl("delete", "priorityclass", "training")


def test_two_pods_of_eight_gpus(bench, priority):
    file = EXAMPLES / "kubernetes/two-pods-of-eight-gpus.yaml"
    applied = bench.control_plane.kubectl("apply", "-n", bench.namespace, "-f", str(file))
    assert applied.returncode == 0, applied.stderr
    eventually(
        lambda: bench.status("sixteen-gpus").get("message") == "waits for its queue to admit it", "its queue decides"
    )
    bench.api.merge(JOBS, bench.namespace, "sixteen-gpus", {"spec": {"suspend": False}})  # as Kueue admits it

    pods = bench.wait_for_pods("sixteen-gpus", 2)
    for pod in pods:
        spec = pod["spec"]
        assert spec["priority"] == priority
        (trainer,) = spec["containers"]
        devices = {"nvidia.com/gpu": "8", "rdma/hca": "1"}
        for amounts in (trainer["resources"]["limits"], trainer["resources"]["requests"]):
            assert devices.items() <= amounts.items()
        (monitor,) = spec["initContainers"]
        assert not devices.keys() & monitor["resources"]["limits"].keys()

        mounts = {each["mountPath"]: each["name"] for each in trainer["volumeMounts"]}
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
        variables = {each["name"]: each.get("value") for each in trainer["env"]}
        nccl = {name: value for name, value in variables.items() if name.startswith("NCCL_")}
        assert nccl == {"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "WARN"}
        assert variables["MASTER_ADDR"] == f"sixteen-gpus-0.sixteen-gpus.{bench.namespace}.svc"
        assert "securityContext" not in trainer, "as the example has it: a capability would be lost on its user"
        assert any(each.get("key") == "nvidia.com/gpu" for each in spec["tolerations"])
        assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "gpu-8x"}
    assert [pod["spec"]["hostname"] for pod in pods] == ["sixteen-gpus-0", "sixteen-gpus-1"]
