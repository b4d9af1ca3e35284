"""A worker is found by name: what answers must prove that it is that worker, of this job."""

import itertools
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest
from kit.certificates import Authority
from trimtab.launch.environment.ports import free_ports
from trimtab.launch.pod import wait_for_peer as wait_for_peer_module
from trimtab.launch.pod.wait_for_peer import wait_for_peer
from trimtab_api.errors import UserError


@pytest.fixture
def serve():
    """A TLS server that greets whoever comes, with the certificates of a directory; returns its port."""
    listeners = []

    def start(directory, port=0):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=directory / "ca.crt")
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
        listener = socket.create_server(("127.0.0.1", port))
        listeners.append(listener)

        def greet():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        threading.Thread(target=greet, daemon=True).start()
        return listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_whoever_proves_the_name_is_found(serve, tmp_path):
    authority = Authority.new()
    port = serve(authority.issue(tmp_path / "server"))
    assert wait_for_peer("localhost", port, authority.issue(tmp_path / "mine"), 10, print) == "127.0.0.1"


def test_without_a_deadline_it_is_waited_for_until_it_answers(monkeypatch):
    """Worker 0's pod may wait for a node for hours."""
    tries = iter([OSError(), OSError(), OSError()])
    clock = iter(range(0, 10**9, 10**6))

    def attempt(host, port, context):
        for refused in tries:
            raise refused
        return "10.0.0.1"

    monkeypatch.setattr(wait_for_peer_module, "_try_once", attempt)
    monkeypatch.setattr(wait_for_peer_module, "pause", lambda seconds: None)
    monkeypatch.setattr(wait_for_peer_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    said = []
    assert wait_for_peer("digits-0", 8471, None, None, said.append) == "10.0.0.1"
    assert len(said) == 3


def test_without_certificates_whoever_answers_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert wait_for_peer("localhost", server.getsockname()[1], None, 10, print) == "127.0.0.1"


def test_a_server_that_comes_later_is_waited_for(serve, tmp_path):
    authority = Authority.new()
    port = free_ports(1)[0]
    later = threading.Timer(0.3, serve, [authority.issue(tmp_path / "server"), port])
    later.start()
    assert wait_for_peer("localhost", port, authority.issue(tmp_path / "mine"), 30, print) == "127.0.0.1"
    later.join()


def test_another_job_at_that_address_is_not_taken_for_it(serve, tmp_path):
    port = serve(Authority.new().issue(tmp_path / "server"))
    with pytest.raises(UserError) as caught:
        wait_for_peer("localhost", port, Authority.new().issue(tmp_path / "mine"), 0, print)
    assert str(caught.value).startswith(
        f"peer: 'localhost:{port}': did not answer within 0 s: something else answers there ("
    )


def test_a_name_that_stays_unknown_is_said():
    with pytest.raises(UserError, match="did not answer within 0 s: the name is not known yet; run `kubectl get pods`"):
        wait_for_peer("digits-0.digits.default.svc.invalid", 1, None, 0, print)


def test_a_port_that_stays_closed_is_said():
    with pytest.raises(UserError, match="did not answer within 0 s: Connection refused"):
        wait_for_peer("localhost", free_ports(1)[0], None, 0, print)


def test_an_unknown_name_is_looked_up_ever_more_rarely(monkeypatch):
    """Thousands of workers that wait for worker 0's pod share the cluster's DNS servers."""
    now, asked = [0.0], []

    def resolve(host, *_, **__):
        asked.append(now[0])
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr("trimtab.launch.pod.wait_for_peer.socket.getaddrinfo", resolve)
    monkeypatch.setattr("trimtab.launch.pod.wait_for_peer.time.monotonic", lambda: now[0])
    monkeypatch.setattr("trimtab.launch.pod.wait_for_peer.pause", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(UserError, match="the name is not known yet"):
        wait_for_peer("digits-0.digits.default.svc", 1, None, 300, lambda line: None)
    assert len(asked) <= 300 / 4 + 5
    assert max(later - sooner for sooner, later in itertools.pairwise(asked)) <= 8


def test_another_pod_of_the_same_job_is_not_the_one_that_was_called(serve, tmp_path):
    authority = Authority.new()
    port = serve(authority.issue(tmp_path / "server", names=("digits-1.digits.default.svc",)))
    with pytest.raises(UserError, match="something else answers there"):
        wait_for_peer("localhost", port, authority.issue(tmp_path / "mine"), 0, print)
