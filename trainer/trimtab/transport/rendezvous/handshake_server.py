"""A server of many handshakes at once, on one thread: a peer that is silent, or talks nonsense, delays nobody else."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self

from trimtab.transport.rendezvous.handshake import AuthenticationError, Steps, T

#: Seconds that somebody who connects has to prove who it is.
PATIENCE_SECONDS = 20.0
#: Connections that may be unauthenticated at once; for a further one the oldest is closed.
MAX_UNAUTHENTICATED = 256


@dataclass
class _Handshake(Generic[T]):
    socket: socket.socket
    steps: Steps[T]
    until: float
    called: int | None = None
    """The peer that was called; None if the other end called."""
    wanted: int | None = None
    """Bytes of the next message; None while a connection that was called for is not there yet."""
    got: bytearray = field(default_factory=bytearray)


class CallError(Exception):
    """A peer that was called did not answer as it should."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(reason)
        self.peer = peer
        self.reason = reason


class HandshakeServer(Generic[T]):
    """Answers each peer that connects to ``listener``, by its own ``respond()``, and calls others."""

    def __init__(
        self, listener: socket.socket, respond: Callable[[], Steps[T]], patience: float = PATIENCE_SECONDS
    ) -> None:
        """Listen; ``patience``: seconds that a handshake may take which the other end began."""
        self._listener, self._respond, self._patience = listener, respond, patience
        self._handshakes: dict[int, _Handshake[T]] = {}
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handshake in list(self._handshakes.values()):
            self._drop(handshake)
        self._selector.close()

    def call(self, peer: int, connection: socket.socket, address: tuple[str, int], steps: Steps[T]) -> None:
        """Connect an unconnected socket, and run the handshake ``steps``; `next` returns its result."""
        connection.setblocking(False)
        handshake = _Handshake(connection, steps, float("inf"), peer)
        self._handshakes[connection.fileno()] = handshake
        try:
            connection.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._failed(handshake, error) from error
        self._selector.register(connection, selectors.EVENT_WRITE)

    def next(self, until: float) -> tuple[socket.socket, T] | None:
        """Wait for the next connection whose handshake has ended.

        Returns:
            The socket, which is the caller's from then on, and the handshake's result; None at ``until``.

        Raises:
            CallError: A peer that was called has failed.
        """
        while (now := time.monotonic()) < until:
            for handshake in [handshake for handshake in self._handshakes.values() if handshake.until <= now]:
                self._drop(handshake)
            ends = min([until, *(handshake.until for handshake in self._handshakes.values())])
            for key, _ in self._selector.select(ends - now):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._handshakes and (ended := self._advance(self._handshakes[key.fd])):
                    return ended
        return None

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or this process has no descriptor left
            return
        unauthenticated = [handshake for handshake in self._handshakes.values() if handshake.called is None]
        if len(unauthenticated) >= MAX_UNAUTHENTICATED:
            self._drop(unauthenticated[0])
        connection.setblocking(False)
        unauthenticated_peer = _Handshake(connection, self._respond(), time.monotonic() + self._patience)
        unauthenticated_peer.wanted = advance(unauthenticated_peer.steps, None, connection)
        self._handshakes[connection.fileno()] = unauthenticated_peer
        self._selector.register(connection, selectors.EVENT_READ)

    def _advance(self, handshake: _Handshake[T]) -> tuple[socket.socket, T] | None:
        """Take what has come, and return the socket and result if the handshake has ended."""
        try:
            if handshake.wanted is None:  # called, and now connected or not
                if error := handshake.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(error, os.strerror(error))
                self._selector.modify(handshake.socket, selectors.EVENT_READ)
                handshake.wanted = advance(handshake.steps, None, handshake.socket)
                return None
            data = handshake.socket.recv(handshake.wanted - len(handshake.got))
            if not data:
                raise ConnectionResetError(0, "it hung up")
            handshake.got += data
            if len(handshake.got) < handshake.wanted:
                return None
            message, handshake.got = bytes(handshake.got), bytearray()
            handshake.wanted = advance(handshake.steps, message, handshake.socket)
        except StopIteration as ended:
            self._selector.unregister(handshake.socket)
            del self._handshakes[handshake.socket.fileno()]
            return handshake.socket, ended.value
        except BlockingIOError:
            return None
        except (OSError, AuthenticationError, ValueError) as error:
            if handshake.called is not None:
                raise self._failed(handshake, error) from error
            self._drop(handshake)
        return None

    def _failed(self, handshake: _Handshake[T], error: Exception) -> CallError:
        assert handshake.called is not None
        self._drop(handshake)
        return CallError(handshake.called, format_connection_error(error))

    def _drop(self, handshake: _Handshake[T]) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(handshake.socket)
        self._handshakes.pop(handshake.socket.fileno(), None)
        handshake.socket.close()


def run_handshake(connection: socket.socket, steps: Steps[T], until: float) -> T:
    """Run one handshake alone, waiting for the other end until ``until``.

    Raises:
        OSError: The other end is gone, or does not answer in time.
        AuthenticationError: The other end does not know the secret.
    """
    try:
        wanted = advance(steps, None, connection)
        while True:
            message = bytearray()
            while len(message) < wanted:
                connection.settimeout(max(0.01, until - time.monotonic()))
                data = connection.recv(wanted - len(message))
                if not data:
                    raise ConnectionResetError(0, "it hung up")
                message += data
            wanted = advance(steps, bytes(message), connection)
    except StopIteration as ended:
        result: T = ended.value
        return result


def advance(steps: Steps[T], message: bytes | None, connection: socket.socket) -> int:
    """Go on with ``message``, send what there is to send, and return the number of bytes to wait for next.

    Messages are small: they go out whole, unless the other end has not read for long.

    Raises:
        StopIteration: The handshake has ended, with its result.
    """
    step = steps.send(message)  # type: ignore[arg-type]  # None begins a generator
    while isinstance(step, bytes):
        connection.sendall(step)
        step = next(steps)
    return step


def format_connection_error(error: Exception) -> str:
    """Return why a handshake failed, in a few words."""
    if isinstance(error, AuthenticationError):
        return "what answers there does not know this job's secret"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error)).lower()
