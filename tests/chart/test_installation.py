"""The chart on a real API server: what it renders is accepted, its rights suffice, and it goes without the jobs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from control_plane import ControlPlane
from example_jobs import made_of
from helm_chart import CHART
from programs import Program, wait_until
from rendered import operator_container, pods

pytestmark = [pytest.mark.helm, pytest.mark.controlplane, pytest.mark.slow]

JOB = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "workers": 2,
        "template": {
            "spec": {"containers": [{"name": "trainer", "image": "trainer", "command": ["python", "train.py"]}]}
        },
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as control_plane:
        yield control_plane


def kubectl(cluster, *arguments, stdin=None):
    done = cluster.kubectl(*arguments, stdin=stdin if stdin is None else json.dumps(stdin))
    assert done.returncode == 0, done.stderr
    return done


def try_to_install(helm, cluster, namespace, *settings, flags=()):
    values = [word for setting in settings for word in ("--set-json", setting)]
    where = ["--namespace", namespace, "--create-namespace", "--kubeconfig", str(cluster.kubeconfig)]
    return helm.run("install", "trimtab", str(CHART), *where, *values, *flags)


def install(helm, cluster, namespace, *settings, flags=()):
    done = try_to_install(helm, cluster, namespace, *settings, flags=flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def uninstall(helm, cluster, namespace):
    done = helm.run("uninstall", "trimtab", "-n", namespace, "--kubeconfig", str(cluster.kubeconfig))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def no_definition(cluster):
    """The cluster without the definition that an earlier test kept, and its jobs."""
    kubectl(cluster, "delete", "crd", "trainingjobs.trimtab.dev", "--ignore-not-found", "--timeout=60s")


@pytest.fixture
def operator(cluster, tmp_path):
    """Start the operator as the chart's Deployment would: with its flags, under its account."""
    started = []

    def start(rendered, namespace):
        token = kubectl(cluster, "create", "token", "trimtab", "-n", namespace).stdout.strip()
        kubeconfig = json.loads(cluster.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": token}
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        flags = [each for each in operator_container(rendered)["args"] if not each.startswith("--port")]
        command = [Path(sys.executable).parent / "trimtab-operator", *flags, "--port=0"]
        program = Program(command, tmp_path / "operator.log", {"KUBECONFIG": str(tmp_path / "kubeconfig")})
        started.append(program)
        return program

    yield start
    for program in started:
        program.stop()


def test_the_api_server_takes_what_the_chart_renders(helm, cluster):
    kubectl(cluster, "create", "namespace", "taken")
    kubectl(cluster, "create", "serviceaccount", "trimtab-test", "-n", "taken")  # a dry run makes none for the pod
    done = cluster.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "-f",
        "-",
        stdin=yaml.safe_dump_all(helm.template(namespace="taken")),
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


@pytest.fixture
def restricted(cluster):
    """A namespace whose pods are restricted; it asks the API server whether such a pod is let in."""
    kubectl(cluster, "create", "namespace", "restricted")
    kubectl(cluster, "label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")

    def admit(spec):
        name = spec.get("serviceAccountName", "default")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        kubectl(cluster, "apply", "-n", "restricted", "-f", "-", stdin=account)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": spec}
        kubectl(cluster, "create", "-n", "restricted", "--dry-run=server", "-f", "-", stdin=pod)

    yield admit
    kubectl(cluster, "delete", "namespace", "restricted", "--timeout=60s")


def test_its_pods_are_admitted_where_pods_are_restricted(helm, restricted):
    for spec in pods(helm.template(namespace="restricted")):
        restricted(spec)


def test_the_pod_of_the_example_for_restricted_namespaces_is_admitted_there(restricted):
    restricted(made_of("digits.yaml")[0]["spec"]["template"]["spec"])


@pytest.mark.parametrize("seconds", [600, 1800])
def test_the_notes_let_helm_wait_for_longer_than_its_test_may_take(helm, cluster, no_definition, seconds):
    setting = f"test.timeoutSeconds={seconds}"
    notes = install(helm, cluster, "told", setting, flags=["--dry-run=client"])
    (given,) = re.findall(r"helm test trimtab -n told --timeout (\d+)s\n", notes)
    (pod,) = [each for each in helm.template(setting) if each["kind"] == "Pod"]
    assert seconds < pod["spec"]["activeDeadlineSeconds"] < int(given)


def test_the_notes_say_how_the_example_is_pulled_from_the_registry_that_was_named(helm, cluster, no_definition):
    named = install(helm, cluster, "told", 'registry="registry.example.com/team"', flags=["--dry-run=client"])
    (command,) = re.findall(r"sed .* \| kubectl apply -f -", named)
    replaced = subprocess.run(
        ["bash", "-c", command.replace("kubectl apply -f -", "cat")],
        cwd=CHART.parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    job = yaml.safe_load(replaced.stdout)
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    assert trainer["image"] == "registry.example.com/team/trainer:0.1.0"
    assert "localhost/trimtab/..." not in named


def test_the_notes_say_nothing_of_a_registry_where_every_image_was_named(helm, cluster, no_definition):
    settings = [f'{part}.image.repository="elsewhere.example.com/{part}"' for part in ("operator", "netmon", "test")]
    notes = install(helm, cluster, "told", *settings, flags=["--dry-run=client"])
    assert "no registry serves" not in notes


def test_the_notes_say_that_no_registry_serves_the_images_unless_one_was_named(helm, cluster, no_definition):
    unnamed = install(helm, cluster, "told", flags=["--dry-run=client"])
    assert "    kubectl apply -f examples/digits.yaml\n" in unnamed
    assert "helm upgrade trimtab charts/trimtab -n told --reuse-values --set registry=" in unnamed


def test_releases_of_one_name_may_each_look_after_a_namespace(helm, cluster, no_definition):
    settings = ("namespaced=true", "rbac.aggregate=true")
    install(helm, cluster, "red", *settings)
    install(helm, cluster, "blue", *settings, "crd.install=false")
    for namespace in ("red", "blue"):
        uninstall(helm, cluster, namespace)


@pytest.mark.parametrize(("namespaced", "elsewhere"), [("false", "yes"), ("true", "no")])
def test_the_operator_may_read_secrets_by_name_alone_and_beyond_its_namespace_only_unless_namespaced(
    helm, cluster, no_definition, namespaced, elsewhere
):
    def may(verb, namespace):
        account = "--as=system:serviceaccount:reader:trimtab"
        return cluster.kubectl("auth", "can-i", verb, "secrets", account, "-n", namespace).stdout.strip()

    install(helm, cluster, "reader", f"namespaced={namespaced}")
    assert (may("get", "reader"), may("get", "kube-system")) == ("yes", elsewhere)
    assert {may(verb, namespace) for verb in ("list", "watch") for namespace in ("reader", "kube-system")} == {"no"}
    uninstall(helm, cluster, "reader")


def test_a_second_operator_for_all_namespaces_is_refused_under_the_name_of_the_first(helm, cluster, no_definition):
    install(helm, cluster, "first")
    done = try_to_install(helm, cluster, "second", "crd.install=false")
    assert done.returncode != 0
    assert 'ClusterRole "trimtab"' in done.stderr
    uninstall(helm, cluster, "first")


def test_a_definition_that_was_kept_is_its_first_releases_until_another_takes_it_or_leaves_it_out(
    helm, cluster, no_definition
):
    def owner():
        place = r"jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}"
        return kubectl(cluster, "get", "crd", "trainingjobs.trimtab.dev", "-o", place).stdout

    notes = install(helm, cluster, "here")
    assert "--take-ownership" in notes
    assert "crd.install=false" in notes
    uninstall(helm, cluster, "here")
    install(helm, cluster, "here")
    uninstall(helm, cluster, "here")

    done = try_to_install(helm, cluster, "there")
    assert done.returncode != 0
    assert 'CustomResourceDefinition "trainingjobs.trimtab.dev"' in done.stderr
    assert "invalid ownership metadata" in done.stderr

    install(helm, cluster, "there", "crd.install=false")
    uninstall(helm, cluster, "there")
    assert owner() == "here"
    install(helm, cluster, "there", flags=["--take-ownership"])
    assert owner() == "there"
    assert "kept due to the resource policy" in uninstall(helm, cluster, "there")


@pytest.mark.parametrize(
    ("namespace", "settings"),
    [
        ("everywhere", ()),
        # Whoever installs into one namespace may not install what is the cluster's.
        ("alone", ("namespaced=true", "crd.install=false")),
    ],
)
def test_the_rights_of_the_chart_are_enough_for_a_job(helm, cluster, operator, no_definition, namespace, settings):
    if settings:
        kubectl(cluster, "apply", "-f", str(CHART / "crd"))
    notes = install(helm, cluster, namespace, *settings)
    assert "kubectl get tj" in notes
    program = operator(helm.template(*settings, namespace=namespace), namespace)
    kubectl(cluster, "wait", "--for=condition=Established", "--timeout=60s", "crd/trainingjobs.trimtab.dev")
    kubectl(cluster, "apply", "-n", namespace, "-f", "-", stdin=JOB)

    def children():
        assert program.is_running, program.last_lines()
        kinds = "job,service,secret,networkpolicy"
        listed = kubectl(cluster, "get", kinds, "-n", namespace, "-l", "trimtab.dev/job-name=digits", "-o", "name")
        return {line.split("/")[0].split(".")[0] for line in listed.stdout.split()}

    every = {"job", "service", "secret", "networkpolicy"}
    wait_until(lambda: children() == every, "the job's children are there", seconds=60)
    wait_until(
        lambda: (
            "Starting" in kubectl(cluster, "get", "tj", "digits", "-n", namespace).stdout
            or "Pending" in kubectl(cluster, "get", "tj", "digits", "-n", namespace).stdout
        ),
        "its status is written",
    )
    log = program.log.read_text()
    assert "orbidden" not in log

    gone = uninstall(helm, cluster, namespace)
    assert ("kept due to the resource policy" in gone) == (not settings)
    kubectl(cluster, "get", "crd", "trainingjobs.trimtab.dev")
    kubectl(cluster, "get", "tj", "digits", "-n", namespace)
    left = kubectl(
        cluster, "get", "deployment,poddisruptionbudget,networkpolicy,role,rolebinding", "-n", namespace, "-o", "name"
    )
    assert [name for name in left.stdout.split() if "digits" not in name] == []
