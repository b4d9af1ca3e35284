"""How the operator asks the API server: with credentials that are never older than a moment."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client import ApiClient, Configuration
from trimtab_operator.cluster import api
from trimtab_operator.cluster.api import Api
from trimtab_operator.cluster.resources import PODS


@pytest.fixture
def server():
    """Answers every request with an empty object, and keeps who asked."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def asks(server):
    """Ask so many times, with a token that is another whenever the official client is asked for it."""
    settings = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    tokens = iter(range(100))

    def refresh(configuration):
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    settings.api_key["BearerToken"] = ""
    settings.refresh_api_key_hook = refresh
    asking = Api(ApiClient(settings))

    def ask(times):
        for _ in range(times):
            asking.get(PODS, "team", "pod")
        return server.asked

    return ask


def test_credentials_are_asked_for_once_for_many_requests(asks):
    assert len(set(asks(5))) == 1


def test_credentials_that_may_have_expired_are_asked_for_anew(asks, monkeypatch):
    monkeypatch.setattr(api, "CREDENTIAL_SECONDS", 0.0)
    assert len(set(asks(5))) == 5
