"""The HTTP server of health checks and metrics: bounded, so that whoever can connect cannot fill the process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

#: Seconds that one connection may last, from its acceptance to the last byte of its answer.
CONNECTION_SECONDS = 10.0
#: Connections at one time. One more closes the oldest, so that half requests keep nobody out.
MOST_CONNECTIONS = 64

#: A WSGI application.
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class HttpServer:
    """A server of one WSGI application: one request a connection, each connection in a thread of its own."""

    def __init__(
        self,
        application: Application,
        host: str,
        port: int,
        connection_seconds: float = CONNECTION_SECONDS,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        """Listen, and answer nothing yet.

        Args:
            application: the WSGI application.
            host: an address or a name of this machine; empty: every address, of IPv4 and of IPv6.
            port: 0 for any free port.
            connection_seconds: how long a connection may last.
            most_connections: how many connections there may be at one time.

        Raises:
            OSError: if it cannot listen there.
        """
        self._server = _Server(host, port, connection_seconds, most_connections)
        self._server.set_app(application)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.25,), name="http", daemon=True)
        self.port: int = self._server.server_port

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server is stopped."""
        self._thread.join()

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, connection_seconds: float, most_connections: int) -> None:
        self._connection_seconds = connection_seconds
        self._most_connections = most_connections
        self._lock = threading.Lock()
        self._opened_at: dict[socket.socket, float] = {}
        """When each open connection was accepted, the oldest first."""
        self._both_families = not host and socket.has_dualstack_ipv6()
        if self._both_families:
            self.address_family = socket.AF_INET6
        elif host:
            self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking a resolver for this machine's name as the standard library does."""
        if self._both_families:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread; if there are too many connections, close the oldest."""
        with self._lock:
            self._opened_at[request] = time.monotonic()
            surplus = len(self._opened_at) - self._most_connections
            for oldest in list(self._opened_at)[: max(0, surplus)]:
                self._cut(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close the connections that have lasted too long; called several times a second."""
        opened_before = time.monotonic() - self._connection_seconds
        with self._lock:
            for connection, opened_at in list(self._opened_at.items()):
                if opened_at < opened_before:
                    self._cut(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is over."""
        with self._lock:
            self._opened_at.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a connection that broke: whoever can connect could fill the log."""

    def _cut(self, connection: socket.socket) -> None:
        """End a connection under its thread, which then ends by itself."""
        self._opened_at.pop(connection, None)
        with contextlib.suppress(OSError):  # the client may be faster
            connection.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: probes come every few seconds."""

    def address_string(self) -> str:
        """Return the client's address, without asking a resolver for its name."""
        return str(self.client_address[0])
