"""How the tests run helm: as its user would."""

import json

import pytest
from helm_chart import Helm

pytestmark = pytest.mark.helm

#: Nothing listens there: what counts is what helm does before it asks.
NOWHERE = "https://127.0.0.1:1"


def kubeconfig(path, user):
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "nowhere",
                "clusters": [{"name": "nowhere", "cluster": {"server": NOWHERE}}],
                "users": [{"name": "nobody", "user": user}],
                "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
            }
        )
    )
    return path


@pytest.fixture
def made_by_login(tmp_path, monkeypatch):
    """What the program `log-in`, which is on the user's PATH, writes below the user's HOME when it is called."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/log-in"
    program.write_text('#!/bin/sh\ntouch "$HOME/logged-in"\necho no token >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "logged-in"


def test_a_kubeconfig_may_name_a_program_that_logs_in(helm, tmp_path, made_by_login):
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "log-in", "interactiveMode": "Never"}
    config = kubeconfig(tmp_path / "kubeconfig", {"exec": login})
    done = Helm(helm.program, tmp_path / "helm").run("list", "--kubeconfig", str(config))
    assert done.returncode != 0
    assert made_by_login.exists(), done.stderr


def test_what_the_environment_says_of_clusters_and_namespaces_does_not_count(helm, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.setenv("HELM_NAMESPACE", "elsewhere")
    done = Helm(helm.program, tmp_path / "helm").run("env")
    said = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert said["HELM_NAMESPACE"] == '"default"'
    assert said["HELM_CACHE_HOME"] == f'"{tmp_path}/helm/CACHE"'
    assert "KUBECONFIG" not in Helm(helm.program, tmp_path / "helm").environment
