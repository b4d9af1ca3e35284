"""A server that whoever can connect cannot fill: half requests, bytes that come one by one, answers nobody reads."""

import socket
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest
from trimtab_api.http_server import HttpServer

HALF = b"GET /metrics HT"


def say_ok(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


@contextmanager
def serving(application=say_ok, host="127.0.0.1", **bounds):
    server = HttpServer(application, host, 0, **bounds)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server, said=HALF):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(said)
    return connection


def ask(server, path="/healthz"):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=20) as answer:
        return answer.read().decode()


def is_closed(connection):
    """Wait for the server's end of the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", HALF, b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_request_that_does_not_end_is_ended(said):
    with serving(connection_seconds=0.2) as server, connect(server, said) as connection:
        assert is_closed(connection)
        assert ask(server) == "/healthz"


def test_a_request_that_comes_byte_by_byte_is_ended():
    with serving(connection_seconds=0.3) as server, connect(server, b"GET /") as connection:
        with pytest.raises(OSError, match=r"reset|pipe|aborted"):  # noqa: PT012 - any of them may fail
            for _ in range(1000):
                connection.sendall(b"a")
                time.sleep(0.05)


def test_an_answer_that_nobody_reads_is_ended():
    def say_much(environ, start):
        start("200 OK", [])
        return [b"x" * 2**20] * 64

    before = threading.active_count()
    with serving(say_much, connection_seconds=0.3) as server, connect(server, b"GET / HTTP/1.0\r\n\r\n"):
        wait_until(lambda: threading.active_count() >= before + 2)
        wait_until(lambda: threading.active_count() == before + 1)


def test_many_half_requests_hold_few_threads_and_keep_nobody_out():
    before = threading.active_count()
    with serving(connection_seconds=60.0, most_connections=8) as server, ExitStack() as open_ones:
        for _ in range(100):
            open_ones.enter_context(connect(server))
            if threading.active_count() > before + 30:
                wait_until(lambda: threading.active_count() <= before + 10)
        for _ in range(10):
            assert ask(server) == "/healthz"
        wait_until(lambda: threading.active_count() <= before + 10)


@pytest.mark.parametrize("count", [1, 5, 8])
def test_half_requests_up_to_the_limit_are_left_alone_and_answered_once_they_are_whole(count):
    with serving(connection_seconds=60.0, most_connections=8) as server, ExitStack() as open_ones:
        before = threading.active_count()
        connections = [open_ones.enter_context(connect(server)) for _ in range(count)]
        wait_until(lambda: threading.active_count() >= before + count)
        for connection in connections:
            connection.sendall(b"TP/1.0\r\n\r\n")
        for connection in connections:
            assert connection.recv(100).startswith(b"HTTP/1.0 200")


def test_a_port_that_is_taken_is_an_os_error():
    with serving() as server, pytest.raises(OSError, match="in use"):
        HttpServer(say_ok, "127.0.0.1", server.port)


def wait_until(holds, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)
