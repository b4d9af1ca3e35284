"""Health and metrics over HTTP: ``/healthz`` (is it stuck?), ``/readyz`` (has it seen the cluster?), ``/metrics``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from trimtab_operator.metrics import REGISTRY

#: A check: None if all is well, else what is wrong.
Check = Callable[[], str | None]


class HealthServer:
    """Serves from a thread until stopped."""

    def __init__(self, port: int, alive: Check, ready: Check) -> None:
        checks = {"/healthz": alive, "/readyz": ready}
        metrics: Any = make_wsgi_app(REGISTRY)

        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            check = checks.get(environ["PATH_INFO"])
            if check is None:
                return metrics(environ, start)  # type: ignore[no-any-return]
            fault = check()
            start("200 OK" if fault is None else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [f"{fault or 'ok'}\n".encode()]

        host, server = ("::", _OfBothFamilies) if socket.has_dualstack_ipv6() else ("", ThreadingWSGIServer)
        self._server = make_server(host, port, answer, server, handler_class=_Quiet)
        self.port: int = self._server.server_port

    def start(self) -> None:
        """Answer from now on."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _OfBothFamilies(ThreadingWSGIServer):
    """Serves IPv6 and IPv4: a kubelet probes the pod by its first address, of either family."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Bind for both."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Probes come every few seconds; nobody wants to read of them."""
