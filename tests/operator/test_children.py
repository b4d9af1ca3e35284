"""What a job is turned into: built, and built the same every time."""

import json
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
from fixtures import NOW, SETTINGS, UID, job
from trimtab_api.names import MOST_WORKERS, RESERVED_VARIABLES
from trimtab_api.trainer.v1 import status_pb2, status_pb2_grpc
from trimtab_api.trainingjob.load import parse_training_job, read_training_job
from trimtab_operator.children.job import job_manifest
from trimtab_operator.children.network import network_policy, service
from trimtab_operator.children.pod import pod_template
from trimtab_operator.children.secret import certificates_in, is_intact, issue_certificates, job_file, secret


def pod_of(**template):
    return pod_template(job(**template), "team", 0, SETTINGS)["spec"]


def trainer_of(pod):
    return next(each for each in pod["containers"] if each["name"] == "trainer")


def variables(container):
    return {each["name"]: each.get("value") for each in container["env"]}


def test_the_users_template_is_not_written_to():
    ours = job()
    before = ours.model_dump_json()
    pod_template(ours, "team", 0, SETTINGS)
    assert ours.model_dump_json() == before


def test_a_template_whose_optional_fields_are_null_is_one_without_them():
    nothing = job(pod={"initContainers": None, "volumes": None}, container={"ports": None, "env": None})
    nothing.spec.template["metadata"] = None
    assert pod_template(nothing, "team", 0, SETTINGS) == pod_template(job(), "team", 0, SETTINGS)


def test_the_trainer_is_wrapped_by_the_worker_command_and_keeps_its_args():
    trainer = trainer_of(pod_of(container={"args": ["--epochs", "3"]}))
    assert trainer["command"] == ["trimtab", "worker", "--", "python", "t.py"]
    assert trainer["args"] == ["--epochs", "3"]


def test_the_trainer_is_told_where_everything_is():
    told = variables(trainer_of(pod_of(container={"env": [{"name": "MINE", "value": "1"}]})))
    assert told["MINE"] == "1"
    assert told["MASTER_ADDR"] == "digits-0.digits.team.svc"
    assert told["TRIMTAB_TLS_DIR"] == "/var/run/trimtab/tls"
    assert set(told) - {"MINE"} <= set(RESERVED_VARIABLES)


def test_the_monitor_is_a_native_sidecar_that_is_up_before_all_else():
    pod = pod_of(pod={"initContainers": [{"name": "fetch", "image": "f"}]})
    monitor, fetch = pod["initContainers"]
    assert (monitor["name"], monitor["restartPolicy"], fetch["name"]) == ("netmon", "Always", "fetch")
    assert "startupProbe" in monitor
    assert monitor["terminationMessagePolicy"] == "FallbackToLogsOnError", "its last words are told"
    flags = dict(zip(monitor["args"][::2], monitor["args"][1::2], strict=True))
    assert flags["--peers"] == "digits-{0..1}.digits.team.svc:29400"
    assert flags["--service"] == "digits.team.svc"
    assert flags["--rank"] == "$(JOB_COMPLETION_INDEX)"
    assert flags["--probe-bytes-per-day"] == "50000000000B"
    assert flags["--interface"] == "eth0"


def test_the_monitor_knows_its_node_and_zone():
    monitor = pod_of()["initContainers"][0]
    fields = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in monitor["env"] if "valueFrom" in each
    }
    assert fields["TRIMTAB_NODE"] == "spec.nodeName"
    assert fields["TRIMTAB_ZONE"] == "metadata.labels['topology.kubernetes.io/zone']"
    flags = dict(zip(monitor["args"][::2], monitor["args"][1::2], strict=True))
    assert (flags["--node"], flags["--zone"]) == ("$(TRIMTAB_NODE)", "$(TRIMTAB_ZONE)")


def test_the_monitor_may_run_where_pods_are_restricted():
    context = pod_of()["initContainers"][0]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_on_the_hosts_network_the_users_device_is_measured():
    pod = pod_of(pod={"hostNetwork": True}, container={"env": [{"name": "GLOO_SOCKET_IFNAME", "value": "ib0"}]})
    assert "ib0" in pod["initContainers"][0]["args"]


def test_a_device_that_is_named_by_a_field_is_known_to_the_monitor_by_the_same_field():
    given = {"name": "GLOO_SOCKET_IFNAME", "valueFrom": {"configMapKeyRef": {"name": "devices", "key": "fast"}}}
    monitor = pod_of(container={"env": [given]})["initContainers"][0]
    assert "$(GLOO_SOCKET_IFNAME)" in monitor["args"]
    assert given in monitor["env"]


def test_a_device_without_a_name_is_the_pods_own():
    monitor = pod_of(container={"env": [{"name": "GLOO_SOCKET_IFNAME"}]})["initContainers"][0]
    assert "eth0" in monitor["args"]


def test_as_many_workers_as_may_be_with_long_names_are_one_word_that_a_process_can_be_given():
    template = pod_template(job(name="n" * 52, workers=MOST_WORKERS), "s" * 63, 0, SETTINGS)
    assert max(map(len, template["spec"]["initContainers"][0]["args"])) < 1000


def test_the_monitor_takes_what_the_operator_was_told():
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    template = pod_template(job(), "team", 0, replace(SETTINGS, netmon_resources=resources))
    assert template["spec"]["initContainers"][0]["resources"] == resources


SMALL = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
EQUAL = {"limits": {"cpu": 2, "memory": "8Gi"}, "requests": {"cpu": "2000m", "memory": "8192Mi"}}


@pytest.mark.parametrize(
    ("trainer", "fetch", "of_the_monitor", "is_guaranteed"),
    [
        (EQUAL, EQUAL, SMALL, True),
        ({"limits": {"cpu": "1", "memory": "1e9"}}, EQUAL, {"limits": {"cpu": "1", "memory": "1Gi"}}, True),
        (EQUAL, {}, SMALL, False),
        (EQUAL | {"requests": {"cpu": "1"}}, EQUAL, SMALL, False),
        ({"limits": {"memory": "8Gi"}, "requests": {"cpu": "1", "memory": "8Gi"}}, EQUAL, SMALL, False),
    ],
)
def test_the_monitor_does_not_make_a_guaranteed_pod_burstable(trainer, fetch, of_the_monitor, is_guaranteed):
    ours = job(
        container={"resources": trainer}, pod={"initContainers": [{"name": "f", "image": "f", "resources": fetch}]}
    )
    resources = replace(SETTINGS, netmon_resources=of_the_monitor)
    given = pod_template(ours, "team", 0, resources)["spec"]["initContainers"][0]["resources"]
    if is_guaranteed:
        assert given["requests"] == given["limits"]
        assert set(given["limits"]) == {"cpu", "memory"}
        assert given["limits"]["memory"] == of_the_monitor["limits"]["memory"]
    else:
        assert given == of_the_monitor


@pytest.mark.parametrize(("user", "runs_as"), [(0, 65532), (1000, None), (None, None)])
def test_the_monitor_is_not_root_where_the_pod_is(user, runs_as):
    pod = pod_of(pod={"securityContext": {} if user is None else {"runAsUser": user}})
    assert pod["initContainers"][0]["securityContext"].get("runAsUser") == runs_as
    assert pod["securityContext"].get("runAsUser") == user, "the trainer runs as the user says"


def test_on_the_hosts_network_workers_still_find_each_other_by_name():
    assert pod_of(pod={"hostNetwork": True})["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod_of(pod={"hostNetwork": True, "dnsPolicy": "Default"})["dnsPolicy"] == "Default", "the user's word"
    assert "dnsPolicy" not in pod_of()


def test_every_port_that_a_pod_listens_at_is_declared():
    pod = pod_of()
    declared = {
        (port["containerPort"], port.get("protocol", "TCP"))
        for each in [*pod["containers"], *pod["initContainers"]]
        for port in each["ports"]
    }
    assert declared == {(29400, "UDP")} | {(port, "TCP") for port in (8471, 8472, 29400, 29402, 29500)}


def test_ports_that_the_user_declares_are_the_users():
    given = [
        {"name": "status", "containerPort": 9000},
        {"name": "first", "containerPort": 29500},
        {"name": "chat", "containerPort": 8471, "protocol": "UDP"},
    ]
    trainer = trainer_of(pod_of(container={"ports": given}))
    ours = [
        {"name": "trimtab-status", "containerPort": 8471},
        {"name": "trimtab-metrics", "containerPort": 8472},
    ]
    assert trainer["ports"] == [*given, *ours]


PASSED_THROUGH = {
    "schedulerName": "gang",
    "priorityClassName": "high",
    "hostNetwork": True,
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone"}],
    "schedulingGates": [{"name": "gate"}],
    "runtimeClassName": "nvidia",
    "imagePullSecrets": [{"name": "registry"}],
}


def test_scheduling_is_kubernetes_own_and_passes_through():
    pod = pod_of(pod=PASSED_THROUGH)
    assert {key: pod[key] for key in PASSED_THROUGH} == PASSED_THROUGH


def test_two_pods_of_eight_gpus():
    container = {
        "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}},
        "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    pod = pod_of(container=container, processesPerWorker=8)
    trainer = trainer_of(pod)
    assert trainer["resources"] == container["resources"]
    assert trainer["securityContext"] == container["securityContext"]
    assert variables(trainer)["NCCL_IB_HCA"] == "mlx5"
    shm = next(each for each in pod["volumes"] if each["name"] == "trimtab-shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert {"name": "trimtab-shm", "mountPath": "/dev/shm"} in trainer["volumeMounts"]


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "/dev//shm"])
def test_shared_memory_that_the_user_mounts_is_the_users(path):
    given = {"volumes": [{"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}]}
    pod = pod_of(pod=given, container={"volumeMounts": [{"name": "mine", "mountPath": path}]})
    assert [each["name"] for each in trainer_of(pod)["volumeMounts"] if "shm" in each["mountPath"]] == ["mine"]
    assert "trimtab-shm" not in {each["name"] for each in pod["volumes"]}


def test_a_volume_named_trimtab_run_keeps_what_runs_leave():
    given = {"volumes": [{"name": "trimtab-run", "persistentVolumeClaim": {"claimName": "runs"}}]}
    pod = pod_of(pod=given)
    kept = [each for each in pod["volumes"] if each["name"] == "trimtab-run"]
    assert kept == given["volumes"]
    assert {"name": "trimtab-run", "mountPath": "/var/run/trimtab/run"} in trainer_of(pod)["volumeMounts"]
    variables = {each["name"]: each.get("value") for each in trainer_of(pod)["env"]}
    assert variables["TRIMTAB_RUN_DIR"] == "/var/run/trimtab/run/team/digits"  # a claim may be several jobs'


def test_pods_have_no_rights_on_the_api_server_unless_the_user_gives_some():
    assert "serviceAccountName" not in pod_of(), "the default account, with its pull secrets"
    assert pod_of()["automountServiceAccountToken"] is False
    theirs = pod_of(pod={"serviceAccountName": "theirs"})
    assert theirs["serviceAccountName"] == "theirs"
    assert "automountServiceAccountToken" not in theirs
    assert pod_of(pod={"serviceAccountName": ""})["automountServiceAccountToken"] is False
    assert pod_of(pod={"automountServiceAccountToken": True})["automountServiceAccountToken"] is True
    assert "automountServiceAccountToken" not in pod_of(pod={"serviceAccount": "theirs"}), "its former name"


@pytest.mark.parametrize(
    ("given", "of_the_account", "pulled_with"),
    [
        ([], [], ["ours"]),
        ([], ["account"], ["account", "ours"]),
        (["theirs"], ["account"], ["theirs", "ours"]),
        (["ours"], [], ["ours"]),
    ],
)
def test_pull_secrets_of_the_monitor_displace_no_others(given, of_the_account, pulled_with):
    settings = replace(SETTINGS, netmon_pull_policy="Always", netmon_pull_secrets=("ours",))
    ours = job(pod={"imagePullSecrets": [{"name": name} for name in given]})
    account = [{"name": name} for name in of_the_account]
    pod = pod_template(ours, "team", 0, settings, account)["spec"]
    assert [each["name"] for each in pod["imagePullSecrets"]] == pulled_with
    assert pod["initContainers"][0]["imagePullPolicy"] == "Always"


def test_pods_without_pull_secrets_get_those_of_their_account():
    """Kubernetes adds them only where the pod names none."""
    assert "imagePullSecrets" not in pod_template(job(), "team", 0, SETTINGS, [{"name": "account"}])["spec"]
    assert "imagePullPolicy" not in pod_of()["initContainers"][0]


def test_every_volume_that_is_mounted_is_there():
    pod = pod_of()
    mounted = {mount["name"] for each in [*pod["containers"], *pod["initContainers"]] for mount in each["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_the_job_holds_on_to_the_rules_of_restarting_together():
    labels = {"kueue.x-k8s.io/queue-name": "q", "team": "vision"}
    built = job_manifest(job(), "team", UID, 4, labels, SETTINGS)
    assert built["metadata"]["labels"] == {
        "trimtab.dev/job-name": "digits",
        "app.kubernetes.io/managed-by": "trimtab-operator",
        "trimtab.dev/attempt": "4",
        "kueue.x-k8s.io/queue-name": "q",
    }
    spec = built["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert built == job_manifest(job(), "team", UID, 4, labels, SETTINGS)


LABELLED = {
    "labels": {"team": "vision", "kueue.x-k8s.io/queue-name": "q", "argocd.argoproj.io/instance": "a"},
    "annotations": {"cost": "7", "kubectl.kubernetes.io/last-applied-configuration": "{}", "meta.helm.sh/x": "y"},
}


def test_every_child_and_pod_has_the_jobs_labels_and_annotations_but_those_of_other_programs():
    ours = read_training_job(job(metadata=LABELLED).model_dump(by_alias=True, exclude_unset=True), ignore_unknown=True)
    built = job_manifest(ours, "team", UID, 0, LABELLED["labels"], SETTINGS)
    others = [
        service(ours, "team", UID, 0),
        network_policy(ours, "team", UID, SETTINGS),
        secret(ours, "team", UID, NOW),
        built["spec"]["template"],
    ]
    own = {"trimtab.dev/job-name": "digits", "app.kubernetes.io/managed-by": "trimtab-operator"}
    for each in others:
        labels = {name: text for name, text in each["metadata"]["labels"].items() if name != "trimtab.dev/attempt"}
        assert labels == {"team": "vision", **own}
        assert set(LABELLED["annotations"]) & set(each["metadata"]["annotations"]) == {"cost"}
    assert built["metadata"]["labels"].items() >= {"team": "vision", "kueue.x-k8s.io/queue-name": "q"}.items()
    assert built["metadata"]["annotations"] == {"cost": "7"}


def test_the_service_finds_the_workers_of_one_attempt():
    found_by = service(job(), "team", UID, 3)["spec"]["selector"]
    assert found_by == {"trimtab.dev/job-name": "digits", "trimtab.dev/attempt": "3"}
    assert found_by.items() <= pod_template(job(), "team", 3, SETTINGS)["metadata"]["labels"].items()


def test_the_templates_own_labels_and_annotations_go_before_the_jobs():
    ours = job(metadata=LABELLED)
    ours.spec.template["metadata"] = {"labels": {"team": "speech"}, "annotations": {"cost": "8"}}
    metadata = pod_template(ours, "team", 0, SETTINGS)["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["cost"]) == ("speech", "8")


@pytest.mark.parametrize(
    ("suspend", "labels", "born", "by_us"),
    [
        (False, {}, False, False),
        (True, {}, True, True),
        (False, {"kueue.x-k8s.io/queue-name": "q"}, True, False),
        (True, {"kueue.x-k8s.io/queue-name": "q"}, True, False),
    ],
)
def test_suspend_passes_through_and_a_job_with_a_queue_is_born_suspended(suspend, labels, born, by_us):
    built = job_manifest(job(suspend=suspend), "team", UID, 0, labels, SETTINGS)
    assert built["spec"]["suspend"] is born
    assert ("trimtab.dev/suspended" in built["metadata"].get("annotations", {})) is by_us


def test_only_the_job_the_operator_and_the_scraper_reach_its_pods():
    same, operator, scraper = network_policy(job(), "team", UID, SETTINGS)["spec"]["ingress"]
    assert same == {"from": [{"podSelector": {"matchLabels": {"trimtab.dev/job-name": "digits"}}}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8471}]
    assert operator["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "trimtab-system"}
    assert scraper["ports"] == [{"protocol": "TCP", "port": 29402}, {"protocol": "TCP", "port": 8472}]


def test_the_job_file_reads_back_as_the_job():
    ours = job(seed=5, communication={"policy": "Static", "plan": "dense"})
    text = job_file(ours, "team")
    assert parse_training_job(text).spec == ours.spec
    assert json.loads(text)["metadata"] == {"name": "digits", "namespace": "team"}


def test_the_job_file_carries_what_differs_from_defaults_and_nothing_else():
    template = job().spec.template
    assert json.loads(job_file(job(), "team"))["spec"] == {"workers": 2, "template": template}
    ours = job(
        seed=5, communication={"timeout": "1h", "ratio": {"max": 0.2}, "speedWeight": 0.5}, target={"value": 0.9}
    )
    assert json.loads(job_file(ours, "team"))["spec"] == {
        "workers": 2,
        "template": template,
        "seed": 5,
        "communication": {"timeout": "3600s", "ratio": {"max": 0.2}},
        "target": {"metric": "accuracy", "value": 0.9},
    }


def test_every_file_that_pods_mount_is_in_the_jobs_secret():
    held = secret(job(), "team", UID, NOW)
    volumes = [each["secret"] for each in pod_of()["volumes"] if "secret" in each]
    assert {each["secretName"] for each in volumes} == {held["metadata"]["name"]}
    assert {item["key"] for each in volumes for item in each["items"]} == set(held["data"])


class Status(status_pb2_grpc.TrainerStatusServicer):
    def GetStatus(self, request, context):  # noqa: N802 - gRPC's name
        return status_pb2.Status(job="digits", step=5)


@pytest.mark.parametrize("owners", [[], [{"uid": "other", "controller": True}], [{"uid": UID}]])
def test_a_secret_of_that_name_that_is_somebody_elses_holds_no_certificates(owners):
    theirs = {"metadata": {"name": "digits-trimtab", "ownerReferences": owners}, "data": {"password": "c2VjcmV0"}}
    assert certificates_in(theirs, UID) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.clear(),
        lambda data: data.pop("tls.key"),
        lambda data: data.update({"ca.crt": "not base64"}),
        lambda data: data.update({"ca.crt": "c2VjcmV0"}),
        lambda data: data.update({"job.json": ""}),
    ],
)
def test_a_secret_of_ours_whose_contents_somebody_replaced_holds_no_certificates(change):
    held = secret(job(), "team", UID, NOW)
    assert is_intact(held)
    change(held["data"])
    assert certificates_in(held, UID) is None
    assert not is_intact(held)
    assert not is_intact({**held, "data": None})


def test_the_certificates_of_a_job_let_its_processes_talk_and_nobody_else(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from trimtab_api.rpc.channels import listen, open_channel

    ours = certificates_in(secret(job(), "team", UID, NOW), UID)
    server = grpc.server(ThreadPoolExecutor(2))
    status_pb2_grpc.add_TrainerStatusServicer_to_server(Status(), server)
    port = listen(server, "localhost:0", ours)
    server.start()
    try:
        with open_channel(f"localhost:{port}", ours) as channel:
            assert (
                status_pb2_grpc.TrainerStatusStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=20).step
                == 5
            )
        with open_channel(f"localhost:{port}", issue_certificates("digits", "team", NOW)) as channel:
            with pytest.raises(grpc.RpcError):
                status_pb2_grpc.TrainerStatusStub(channel).GetStatus(status_pb2.GetStatusRequest(), timeout=5)
    finally:
        server.stop(None)


def test_the_certificates_name_every_worker_and_keeper_of_the_job():
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(issue_certificates("digits", "team", NOW).certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "*.digits.team.svc",
        "*.digits.team.svc.cluster.local",
        "*.digits-keeper.team.svc",
        "*.digits-keeper.team.svc.cluster.local",
        "localhost",
    ]
    assert certificate.public_key().curve.name == "secp256r1"
    assert certificate.not_valid_after_utc - NOW > timedelta(days=3000)


KEEP = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def test_autoscalers_leave_workers_where_they_are():
    assert pod_template(job(), "team", 0, SETTINGS)["metadata"]["annotations"] == KEEP


def test_a_template_may_let_autoscalers_move_workers():
    given = job()
    given.spec.template["metadata"] = {"annotations": {"karpenter.sh/do-not-disrupt": "false", "mine": "a"}}
    built = pod_template(given, "team", 0, SETTINGS)["metadata"]["annotations"]
    assert built == {**KEEP, "karpenter.sh/do-not-disrupt": "false", "mine": "a"}
