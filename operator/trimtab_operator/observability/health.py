"""Health and metrics over HTTP: ``/healthz`` (is it stuck?), ``/readyz`` (has it seen the cluster?), ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import make_wsgi_app
from trimtab_api.http_server import HttpServer

from trimtab_operator.observability.metrics import REGISTRY

#: A check: None if all is well, else what is wrong.
Check = Callable[[], str | None]


class HealthServer:
    """A server of health and metrics, in a thread, until stopped."""

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

        self._server = HttpServer(answer, "", port)
        self.port: int = self._server.port

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.stop()
