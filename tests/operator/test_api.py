"""How the operator asks the API server: with credentials that are never older than a moment."""

import json
import socket
import threading

import pytest
from fake_api import fake_api
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.kube import api, election
from trimtab_operator.kube.api import Api, RefusedError, Unreachable, connect
from trimtab_operator.kube.election import Lock
from trimtab_operator.kube.resources import JOBS, PODS


@pytest.fixture
def server():
    with fake_api() as server:
        yield server


@pytest.fixture
def asks(server):
    """Ask so many times, with a token that is another whenever the official client is asked for it."""
    settings = Configuration(host=server.url)
    tokens = iter(range(100))

    def refresh(configuration):
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    settings.api_key["BearerToken"] = ""
    settings.refresh_api_key_hook = refresh
    asking = Api(ApiClient(settings))

    def ask(times):
        for _ in range(times):
            asking.get(PODS, "team", "pod")
        return [headers["Authorization"] for _, headers in server.asked]

    return ask


def test_credentials_are_asked_for_once_for_many_requests(asks):
    assert len(set(asks(5))) == 1


def test_credentials_that_may_have_expired_are_asked_for_anew(asks, monkeypatch):
    monkeypatch.setattr(api, "CREDENTIAL_SECONDS", 0.0)
    assert len(set(asks(5))) == 5


@pytest.mark.parametrize("version", ["", "17"])
def test_an_object_is_deleted_only_by_its_uid_and_with_what_it_owns(server, version):
    Api(ApiClient(Configuration(host=server.url))).delete(JOBS, "team", "digits", "its-uid", version)
    (sent,) = server.sent
    assert sent["propagationPolicy"] == "Foreground"
    assert sent["preconditions"] == {"uid": "its-uid"} | ({"resourceVersion": version} if version else {})


@pytest.mark.parametrize("status", [404, 409])
def test_an_object_that_is_gone_or_replaced_counts_as_deleted(server, status):
    server.status = status
    Api(ApiClient(Configuration(host=server.url))).delete(JOBS, "team", "digits", "its-uid")


def test_a_deletion_that_is_refused_is_an_error(server):
    server.status = 403
    with pytest.raises(RefusedError):
        Api(ApiClient(Configuration(host=server.url))).delete(JOBS, "team", "digits", "its-uid")


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """A client of a server that takes every request and answers none, and the connections that the server has had."""
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take():
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        taking = threading.Thread(target=take)
        taking.start()
        user = {"name": "me", "user": {"token": "t"}}
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{listener.getsockname()[1]}"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "me"}}
        file = tmp_path / "kubeconfig"
        file.write_text(
            json.dumps({"users": [user], "clusters": [cluster], "contexts": [context], "current-context": "x"})
        )
        monkeypatch.setenv("KUBECONFIG", str(file))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        before = Configuration.get_default_copy()
        monkeypatch.setattr(api, "TIMEOUT", (10.0, 0.2))
        monkeypatch.setattr(election, "REQUEST_SECONDS", 0.2)
        yield connect(1), taken
        Configuration.set_default(before)
        listener.shutdown(socket.SHUT_RDWR)
        taking.join()
    for each in taken:
        each.close()


@pytest.mark.parametrize("ask", [Api.get, Api.list])
def test_a_request_that_is_not_answered_in_time_is_sent_once(silent, ask):
    client, taken = silent
    with pytest.raises(Unreachable):
        ask(Api(client), PODS, "team", *(["pod"] if ask is Api.get else []))
    assert len(taken) == 1


def test_so_is_one_about_the_lease(silent):
    client, taken = silent
    found, _ = Lock(client, "lease", "team", "me").get("lease", "team")
    assert (found, len(taken)) == (False, 1)
