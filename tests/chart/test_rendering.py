"""What the chart makes of its values."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helm_chart import CHART
from trimtab_api.names import TRAINER_STATUS_PORT
from trimtab_api.trainingjob import load_training_job
from trimtab_operator.children.network import network_policy
from trimtab_operator.main import read_settings
from trimtab_operator.operator import LEASE
from trimtab_operator.settings import NETMON_RESOURCES

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

import operator_role
from rendered import of_kind, one, operator_container, pods

pytestmark = pytest.mark.helm

STATUS_PORTS = [{"protocol": "TCP", "port": TRAINER_STATUS_PORT}]
MONITORING = "monitoring.enabled=true"


def rights(rules):
    """Every single right: group, resource, verb, and the names that it is limited to, if any."""
    return {
        (group, resource, verb, *rule.get("resourceNames", ()))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def operators_rules(objects):
    bindings = of_kind(objects, "ClusterRoleBinding") + of_kind(objects, "RoleBinding")
    roles = {
        (each["kind"], each["metadata"]["name"]): each["rules"] for each in objects if each["kind"].endswith("Role")
    }
    held = [each["roleRef"] for each in bindings if each["subjects"][0]["name"] == "trimtab"]
    return [rule for role in held for rule in roles[role["kind"], role["name"]]]


def test_the_operators_flags_are_flags_that_it_has(helm):
    settings = read_settings(operator_container(helm.template())["args"])
    assert (settings.namespace, settings.watched_namespace, settings.port) == ("trimtab-system", None, 8080)
    assert settings.netmon_image == "localhost/trimtab/netmon:0.1.0"
    assert settings.scraper_namespace == "monitoring"
    assert settings.netmon_resources == NETMON_RESOURCES


def test_the_monitors_resources_are_the_installers(helm):
    rendered = helm.template('netmon.resources={"limits": {"cpu": 1, "memory": "1Gi"}}')
    settings = read_settings(operator_container(rendered)["args"])
    limits = {"cpu": 1, "memory": "1Gi"}
    assert settings.netmon_resources == {"requests": NETMON_RESOURCES["requests"], "limits": limits}


def images(objects):
    """Of operator and monitor, and of the operator and the trainer in ``helm test``."""
    operator, (test,) = operator_container(objects), one(objects, "Pod", "trimtab-test")["spec"]["containers"]
    monitor = read_settings(operator["args"]).netmon_image
    (trainer,) = [each["value"] for each in test["env"] if each["name"] == "IMAGE"]
    return operator["image"], monitor, test["image"], trainer


@pytest.mark.parametrize(
    "registry", ["registry.example.com/team", "registry.example.com:5000", "localhost:5000/a/b", "docker.io/team"]
)
def test_one_registry_serves_all_images(helm, registry):
    parts = ("operator", "netmon", "operator", "trainer")
    assert images(helm.template(f'registry="{registry}"')) == tuple(f"{registry}/{part}:0.1.0" for part in parts)


def test_an_image_may_be_elsewhere_than_in_the_registry(helm):
    monitor = {"repository": "other.example.com/monitor", "tag": "2"}
    objects = helm.template('registry="registry.example.com/team"', f"netmon.image={json.dumps(monitor)}")
    of_operator, of_monitor = "registry.example.com/team/operator:0.1.0", "other.example.com/monitor:2"
    assert images(objects)[:3] == (of_operator, of_monitor, of_operator)


def test_without_a_registry_images_are_those_that_were_built_here_and_nobodys_elsewhere(helm):
    parts = ("operator", "netmon", "operator", "trainer")
    assert images(helm.template()) == tuple(f"localhost/trimtab/{part}:0.1.0" for part in parts)


def test_jobs_let_the_operators_pods_ask_for_their_status(helm):
    objects = helm.template()
    settings = read_settings(operator_container(objects)["args"])
    job = load_training_job(Path(__file__).parents[2] / "examples/digits.yaml")
    policy = network_policy(job, "default", "4f2a", settings)
    (peer,) = next(rule["from"] for rule in policy["spec"]["ingress"] if rule.get("ports") == STATUS_PORTS)
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "trimtab-system"}
    labels = one(objects, "Deployment", "trimtab")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_operator_may_do_what_the_tests_let_it_do_and_nothing_else(helm):
    assert rights(operators_rules(helm.template())) == rights(operator_role.RULES)


def test_of_leases_the_operator_may_read_and_write_only_its_own(helm):
    of_leases = {right for right in rights(operators_rules(helm.template())) if right[1] == "leases"}
    group = "coordination.k8s.io"
    assert of_leases == {(group, "leases", "create")} | {(group, "leases", verb, LEASE) for verb in ("get", "update")}


def test_no_right_is_a_wildcard(helm):
    for each in helm.template():
        if each["kind"] in ("Role", "ClusterRole"):
            assert not any("*" in right for right in rights(each["rules"]))


def test_in_one_namespace_the_operator_has_no_right_beyond_it(helm):
    objects = helm.template("namespaced=true")
    of_the_cluster = {("", "nodes", "get")}
    assert rights(operators_rules(objects)) == rights(operator_role.RULES) - of_the_cluster
    assert {each["metadata"]["namespace"] for each in of_kind(objects, "Role")} == {"trimtab-system"}
    assert read_settings(operator_container(objects)["args"]).watched_namespace == "trimtab-system"


def test_in_one_namespace_only_the_definition_is_the_clusters(helm):
    objects = helm.template("namespaced=true")
    assert {each["kind"] for each in objects if "namespace" not in each["metadata"]} == {"CustomResourceDefinition"}
    objects = helm.template("namespaced=true", "crd.install=false")
    assert {each["metadata"]["namespace"] for each in objects} == {"trimtab-system"}


@pytest.mark.parametrize(
    ("settings", "is_made"),
    [
        ((), True),
        (("rbac.aggregate=false",), False),
        (("namespaced=true",), False),
        (("namespaced=true", "rbac.aggregate=true"), True),
    ],
)
def test_the_clusters_roles_include_training_jobs_where_all_namespaces_have_them_or_it_is_asked_for(
    helm, settings, is_made
):
    labels = [each["metadata"]["labels"] for each in of_kind(helm.template(*settings), "ClusterRole")]
    assert any("rbac.authorization.k8s.io/aggregate-to-edit" in each for each in labels) == is_made


def test_releases_of_one_name_that_each_have_a_namespace_share_only_the_definition(helm):
    def names(namespace):
        objects = helm.template("namespaced=true", "rbac.aggregate=true", namespace=namespace)
        return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects}

    shared = names("red") & names("blue")
    assert shared == {("CustomResourceDefinition", None, "trainingjobs.trimtab.dev")}


def test_the_definition_is_the_generated_one_and_stays_when_the_chart_goes(helm):
    rendered = one(helm.template(), "CustomResourceDefinition", "trainingjobs.trimtab.dev")
    generated = yaml.safe_load((CHART / "crd/trainingjobs.trimtab.dev.yaml").read_text())
    assert rendered["spec"] == generated["spec"]
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_definition_may_be_left_out_or_go_with_the_chart(helm):
    assert of_kind(helm.template("crd.install=false"), "CustomResourceDefinition") == []
    (definition,) = of_kind(helm.template("crd.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in definition["metadata"]


def test_every_pod_is_restricted(helm):
    for pod in pods(helm.template()):
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_editors_and_viewers_see_training_jobs(helm):
    objects = helm.template()
    editor = one(objects, "ClusterRole", "trimtab-trimtab-system-editor")
    viewer = one(objects, "ClusterRole", "trimtab-trimtab-system-viewer")
    assert editor["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert viewer["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert ("trimtab.dev", "trainingjobs", "create") in rights(editor["rules"])
    assert ("trimtab.dev", "trainingjobs/status", "patch") not in rights(editor["rules"])
    assert {verb for _, _, verb in rights(viewer["rules"])} == {"get", "list", "watch"}


def test_only_the_scrapers_namespace_reaches_the_operator_and_only_its_metrics(helm):
    objects = helm.template('networkPolicy.scraperNamespace="observability"')
    policy = one(objects, "NetworkPolicy", "trimtab")
    assert policy["metadata"]["namespace"] == "trimtab-system"
    scraper = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}
    (served,) = operator_container(objects)["ports"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {"from": [scraper], "ports": [{"protocol": "TCP", "port": served["containerPort"]}]}
    ]
    settings = read_settings(operator_container(objects)["args"])
    assert (settings.port, settings.scraper_namespace) == (served["containerPort"], "observability")


def test_the_network_policy_is_for_the_operators_pods_and_no_others(helm):
    objects = helm.template()
    selected = one(objects, "NetworkPolicy", "trimtab")["spec"]["podSelector"]
    assert list(selected) == ["matchLabels"]
    operator = one(objects, "Deployment", "trimtab")["spec"]["template"]["metadata"]["labels"]
    assert selected["matchLabels"].items() <= operator.items()
    others = [
        one(objects, "Pod", "trimtab-test"),
        one(helm.template(name="other"), "Deployment", "other")["spec"]["template"],
    ]
    for each in others:
        assert not selected["matchLabels"].items() <= each["metadata"]["labels"].items()


def test_without_a_network_policy_jobs_still_let_the_scraper_in(helm):
    objects = helm.template("networkPolicy.enabled=false", 'networkPolicy.scraperNamespace="observability"')
    assert of_kind(objects, "NetworkPolicy") == []
    assert read_settings(operator_container(objects)["args"]).scraper_namespace == "observability"


@pytest.mark.parametrize("namespaced", ["true", "false"])
def test_whoever_binds_the_operator_himself_finds_nothing_bound_to_its_account(helm, namespaced):
    objects = helm.template("rbac.create=false", f"namespaced={namespaced}")
    bindings = of_kind(objects, "ClusterRoleBinding") + of_kind(objects, "RoleBinding")
    assert {each["subjects"][0]["name"] for each in bindings} == {"trimtab-test"}
    assert [each["metadata"]["name"] for each in of_kind(objects, "Role")] == ["trimtab-test"]
    assert one(objects, "ServiceAccount", "trimtab")


def test_the_account_that_is_named_is_made_with_its_annotations(helm):
    objects = helm.template('serviceAccount={"name": "pilot", "annotations": {"example.com/role": "pilot"}}')
    assert one(objects, "ServiceAccount", "pilot")["metadata"]["annotations"] == {"example.com/role": "pilot"}
    assert [each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")] == ["pilot", "trimtab-test"]


def test_an_account_that_there_is_is_not_made_again(helm):
    objects = helm.template("serviceAccount.create=false", 'serviceAccount.name="pilot"')
    assert [each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")] == ["trimtab-test"]


@pytest.mark.parametrize("is_made", ["true", "false"])
def test_the_operator_runs_under_the_account_that_is_named_and_that_has_the_rights(helm, is_made):
    objects = helm.template(f"serviceAccount.create={is_made}", 'serviceAccount.name="pilot"')
    assert one(objects, "Deployment", "trimtab")["spec"]["template"]["spec"]["serviceAccountName"] == "pilot"
    account = {"kind": "ServiceAccount", "name": "pilot", "namespace": "trimtab-system"}
    assert one(objects, "ClusterRoleBinding", "trimtab")["subjects"] == [account]
    assert one(objects, "RoleBinding", "trimtab-election")["subjects"] == [account]


def test_images_are_pulled_with_the_secrets_that_are_named(helm):
    assert not any("imagePullSecrets" in each for each in pods(helm.template()))
    asked = pods(helm.template('imagePullSecrets=[{"name": "registry"}, {"name": "mirror"}]'))
    assert [each["imagePullSecrets"] for each in asked] == [[{"name": "registry"}, {"name": "mirror"}]] * 2


def test_the_monitors_image_is_pulled_as_the_chart_says(helm):
    said = read_settings(operator_container(helm.template())["args"])
    assert (said.netmon_pull_policy, said.netmon_pull_secrets) == ("", ())
    values = ('netmon.image.pullPolicy="Always"', 'netmon.imagePullSecrets=[{"name": "registry"}, {"name": "mirror"}]')
    said = read_settings(operator_container(helm.template(*values))["args"])
    assert (said.netmon_pull_policy, said.netmon_pull_secrets) == ("Always", ("registry", "mirror"))


@pytest.mark.parametrize("secrets", [[], [{"name": "registry"}]])
def test_the_job_of_helm_test_is_pulled_as_the_chart_says(helm, tmp_path, secrets):
    settings = (f"imagePullSecrets={json.dumps(secrets)}", 'test.image.repository="registry.example.com/trainer"')
    objects = helm.template(*settings)
    (container,) = one(objects, "Pod", "trimtab-test")["spec"]["containers"]
    (tmp_path / "smoke_test.py").write_text(one(objects, "ConfigMap", "trimtab-test")["data"]["smoke_test.py"])
    done = subprocess.run(
        [sys.executable, "-c", "import json, smoke_test; print(json.dumps(smoke_test.JOB))"],
        cwd=tmp_path,
        env={each["name"]: each["value"] for each in container["env"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "job.yaml").write_text(done.stdout)
    job = load_training_job(tmp_path / "job.yaml")
    assert job.spec.template["spec"]["imagePullSecrets"] == secrets
    assert job.spec.trainer["image"] == "registry.example.com/trainer:0.1.0"


def test_a_single_operator_needs_no_disruption_budget(helm):
    assert of_kind(helm.template(), "PodDisruptionBudget")
    assert not of_kind(helm.template("operator.replicas=1"), "PodDisruptionBudget")
    assert not of_kind(helm.template("podDisruptionBudget.enabled=false"), "PodDisruptionBudget")


def test_what_needs_other_operators_is_off_until_asked_for(helm):
    without, beside = (
        {(each["kind"], each["metadata"]["name"]) for each in helm.template(*settings)}
        for settings in ((), (MONITORING,))
    )
    dashboards = [("ConfigMap", f"trimtab-dashboard-{name}") for name in ("fleet", "network", "training")]
    monitors = [("PodMonitor", "trimtab"), ("PodMonitor", "trimtab-jobs"), ("PrometheusRule", "trimtab")]
    assert beside - without == {*dashboards, *monitors}


@pytest.mark.parametrize("word", ["123", "1e3", "on", "null"])
def test_names_that_yaml_would_read_as_something_else_stay_names(helm, word):
    def rendered(word, *settings):
        given = (f'serviceAccount.name="{word}"', f'networkPolicy.scraperNamespace="{word}"')
        return helm.template(*settings, *given, name=word, namespace=word)

    for scope in ("namespaced=true", "namespaced=false"):
        plain = json.dumps(rendered("plainword", MONITORING, scope))
        assert json.dumps(rendered(word, MONITORING, scope)) == plain.replace("plainword", word)


def test_labels_that_a_prometheus_selects_by_are_added(helm):
    objects = helm.template(MONITORING, 'monitoring.labels={"release": "prometheus"}')
    for kind, name in (("PodMonitor", "trimtab"), ("PodMonitor", "trimtab-jobs"), ("PrometheusRule", "trimtab")):
        assert (
            one(objects, kind, name)["metadata"]["labels"].items()
            >= {
                "release": "prometheus",
                "app.kubernetes.io/part-of": "trimtab",
            }.items()
        )


def test_dashboards_carry_the_label_that_they_are_collected_by(helm):
    objects = helm.template(MONITORING, 'monitoring.dashboardLabels.team="a"')
    boards = [each for each in of_kind(objects, "ConfigMap") if "dashboard" in each["metadata"]["name"]]
    labels = [each["metadata"]["labels"] for each in boards]
    assert [(each["grafana_dashboard"], each["team"]) for each in labels] == [("1", "a")] * 3


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("operator.replicas=0", "/operator/replicas"),
        ("operator.replicas=-1", "/operator/replicas"),
        ('operator.workers="many"', "/operator/workers"),
        ("operator.replica=2", "'replica'"),
        ('operator.image.pullPolicy="Sometimes"', "/operator/image/pullPolicy"),
        ('operator.image.repository="trimtab operator"', "/operator/image/repository"),
        ('netmon.image.repository="docker.io/trimtab/netmon:0.1.0"', "/netmon/image/repository"),
        ('operator.image.repository="trimtab/operator"', "/operator/image/repository"),
        ('registry="team"', "/registry"),
        ('registry="registry.example.com/team/"', "/registry"),
        ('registry=""', "/registry"),
        ('test.image.tag="newest one"', "/test/image/tag"),
        ("operator.resources=[]", "/operator/resources"),
        ('operator.resources={"request": {}}', "/operator/resources"),
        ('operator.resources.limits.memory="lots"', "/operator/resources/limits/memory"),
        ('netmon.resources={"request": {}}', "/netmon/resources"),
        ('netmon.resources.limits.cpu="many"', "/netmon/resources/limits/cpu"),
        ('networkPolicy.scraperNamespace=""', "/networkPolicy/scraperNamespace"),
        ('networkPolicy.scraperNamespace="Monitoring"', "/networkPolicy/scraperNamespace"),
        ('networkPolicy.scraperNamespace=["monitoring"]', "/networkPolicy/scraperNamespace"),
        ('monitoring.interval="often"', "/monitoring/interval"),
        ('monitoring.enabled="true"', "/monitoring/enabled"),
        ("monitoring.labels.release=1", "/monitoring/labels/release"),
        ('monitoring.label="release"', "/monitoring': additional properties 'label'"),
        ("metrics.podMonitor.enabled=true", "'metrics'"),
        ("dashboards.enabled=true", "'dashboards'"),
        ('netmon.image.pullPolicy="Sometimes"', "/netmon/image/pullPolicy"),
        ('netmon.imagePullSecrets=["name"]', "/netmon/imagePullSecrets/0"),
        ('test.image.pullPolicy="Always"', "/test/image': additional properties 'pullPolicy'"),
        ("crd.installs=true", "'installs'"),
        ("netmonn={}", "'netmonn'"),
        ("test.timeoutSeconds=0", "/test/timeoutSeconds"),
        ('test.timeoutSeconds="5"', "/test/timeoutSeconds"),
        ('imagePullSecrets=["name"]', "/imagePullSecrets/0"),
        ('rbac.aggregate="auto"', "/rbac/aggregate"),
        ("serviceAccount.create=false", "/serviceAccount/name"),
        ('serviceAccount.name="My Account"', "/serviceAccount/name"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm, setting, field):
    done = helm.run("template", "trimtab", str(CHART), "--set-json", setting)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert field in done.stderr


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ("", "podDisruptionBudget"),
        ("podDisruptionBudget", "enabled"),
        ("operator", "image"),
        ("operator", "replicas"),
        ("operator", "workers"),
        ("netmon", "image"),
        ("netmon", "resources"),
        ("test", "image"),
        ("test", "timeoutSeconds"),
        ("networkPolicy", "enabled"),
        ("networkPolicy", "scraperNamespace"),
        ("operator", "mostJobSeries"),
        ("operator", "statusIntervalSeconds"),
        ("operator", "requestsPerSecond"),
        ("monitoring", "enabled"),
        ("monitoring", "interval"),
        ("monitoring", "labels"),
        ("monitoring", "dashboardLabels"),
    ],
)
def test_a_value_that_is_needed_and_taken_away_is_refused_by_name(helm, where, field):
    """Helm takes away what is null, so that the schema sees nothing there."""
    done = helm.run("template", "trimtab", str(CHART), "--set-json", f"{where}.{field}=null".lstrip("."))
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    place = f"/{where}".replace(".", "/").rstrip("/")
    assert f"at '{place}': missing property '{field}'" in done.stderr


def test_what_is_not_needed_may_be_taken_away(helm):
    nothing = ("resources", "podAnnotations", "nodeSelector", "tolerations", "affinity", "priorityClassName")
    gone = [f"operator.{each}=null" for each in nothing]
    gone += ["imagePullSecrets=null", "monitoring.dashboardLabels.grafana_dashboard=null"]
    assert of_kind(helm.template(*gone, MONITORING), "Deployment")


def test_the_chart_passes_helms_own_check(helm):
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_a_node_that_is_drained_takes_one_operator_at_a_time(helm):
    (budget,) = of_kind(helm.template("operator.replicas=3"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_an_operator_that_waits_for_its_caches_is_not_restarted(helm):
    container = operator_container(helm.template())
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
