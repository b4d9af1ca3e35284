"""The examples for clusters, as the operator makes pods of them."""

import pytest
from example_jobs import EXAMPLES, made_of
from trimtab_api.trainingjob import load_training_job


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_every_example_is_a_job_whose_trainer_starts_through_the_worker_command(name):
    made, job = made_of(name)
    (trainer,) = [each for each in made["spec"]["template"]["spec"]["containers"] if each["name"] == "trainer"]
    assert trainer["command"] == ["trimtab", "worker", "--", *job.spec.trainer["command"]]
    assert made["spec"]["completions"] == job.spec.workers


def test_the_image_of_every_example_is_the_one_that_is_built_here():
    paths = [*EXAMPLES.glob("*.yaml"), *EXAMPLES.parent.glob("*.yaml")]
    assert {load_training_job(path).spec.trainer["image"] for path in paths} == {"localhost/trimtab/trainer:0.1.0"}


def test_two_pods_of_eight_gpus_keep_all_that_kubernetes_and_nccl_need():
    made, job = made_of("two-pods-of-eight-gpus.yaml")
    assert job.spec.num_ranks == 16
    assert job.spec.suspend is False, "its queue is who holds it back"
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    pod = made["spec"]["template"]["spec"]
    given = job.spec.template["spec"]
    for field in ("priorityClassName", "nodeSelector", "tolerations", "affinity"):
        assert pod[field] == given[field]
    (trainer,) = pod["containers"]
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/hca": 1, "cpu": "64", "memory": "512Gi"}
    variables = {each["name"]: each.get("value") for each in trainer["env"]}
    assert variables["NCCL_IB_HCA"] == "mlx5"
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each["name"] for each in trainer["volumeMounts"]}
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    (monitor,) = pod["initContainers"]
    assert (monitor["image"], monitor["restartPolicy"]) == ("localhost/trimtab/netmon:0.1.0", "Always")
