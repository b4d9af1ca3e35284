"""The monitor's own engine of bandwidth tests: two threads at each end, and connections that prove they are the job's.

iperf3 3.12 sends all streams from one thread, which cannot fill a link of 25 Gbit/s, and its server talks to whoever
connects. Here each thread has half of the streams; Python's lock is free while the kernel copies. A receiver listens
for one test at a random port, closes connections from other addresses, and counts only those whose end knows the
ticket.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

from trimtab_netmon.probing.engines import NUM_STREAMS, PATIENCE, TestError
from trimtab_netmon.probing.probe_handshake import AuthenticationError, draw_ticket, initiate, respond, run_handshake
from trimtab_netmon.settings import Endpoint

NUM_THREADS = 2
#: Bytes that one call sends or receives at most.
_CHUNK = 1 << 20
#: Seconds after which a thread looks whether it is to stop.
_TICK = 0.05
#: Closes a connection at once and drops what was not sent: the job's own messages do not wait behind it.
_DROP_UNSENT = struct.pack("ii", 1, 0)


class _Streams:
    """The connections of one end, moved by two threads until they are stopped."""

    def __init__(self, connect: Callable[[], list[socket.socket]], event: int, limit: float) -> None:
        self.error = ""
        self._connect = connect
        self._event = event
        self._limit = limit
        self._counts = [0] * NUM_THREADS
        self._stopping = threading.Event()
        self._main = threading.Thread(target=self._run, name="bandwidth-test", daemon=True)

    def start(self) -> None:
        """Connect, then move data."""
        self._main.start()

    @property
    def is_over(self) -> bool:
        """True once nothing is moved any more."""
        return not self._main.is_alive()

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    @property
    def num_bytes(self) -> int:
        """Bytes moved so far."""
        return sum(self._counts)

    async def stop(self) -> None:
        """End the threads and close the connections."""
        self._stopping.set()
        deadline = time.monotonic() + PATIENCE
        while self._main.is_alive() and time.monotonic() < deadline:  # the loop's own threads may all wait for DNS
            await asyncio.sleep(_TICK / 10)

    def _run(self) -> None:
        try:
            connections = self._connect()
        except (OSError, AuthenticationError) as error:
            self.error = str(error) or "the other end does not know the test's ticket"
            return
        try:
            until = time.monotonic() + self._limit
            second = threading.Thread(target=self._move, args=(1, connections[1::NUM_THREADS], until), daemon=True)
            second.start()
            self._move(0, connections[::NUM_THREADS], until)
            second.join()
        finally:
            for connection in connections:
                connection.close()

    def _move(self, thread: int, connections: Sequence[socket.socket], until: float) -> None:
        """Move one thread's share of the streams."""
        buffer = memoryview(bytearray(_CHUNK))
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                connection.setblocking(False)
                selector.register(connection, self._event, data=connection)
            while selector.get_map() and not self._stopping.is_set() and time.monotonic() < until:
                for key, _ in selector.select(_TICK):
                    stream: socket.socket = key.data
                    try:
                        if self._event == selectors.EVENT_WRITE:
                            moved = stream.send(buffer)
                        else:  # the kernel drops the data instead of copying them
                            moved = stream.recv_into(buffer, _CHUNK, socket.MSG_TRUNC)
                    except BlockingIOError:
                        continue
                    except OSError:
                        moved = 0
                    self._counts[thread] += moved
                    if moved == 0:
                        selector.unregister(stream)


class NativeReceiver:
    """The receiving end of one test.

    Args:
        listen: The address to listen at; the port is random.
        peer: The IPv4 address that the sender connects from.
        limit: Seconds after which it ends by itself.
    """

    def __init__(self, listen: str, peer: str, limit: float) -> None:
        self._peer = peer
        self._listener = socket.create_server((listen, 0), backlog=NUM_STREAMS)
        self._listener.settimeout(_TICK)
        self.port: int = self._listener.getsockname()[1]
        self.ticket = draw_ticket()
        self._until = time.monotonic() + limit
        self._streams = _Streams(self._accept_all, selectors.EVENT_READ, limit)
        self._streams.start()

    @property
    def is_over(self) -> bool:
        """True once it receives no more."""
        return self._streams.is_over

    @property
    def num_bytes(self) -> int:
        """Bytes that it has received."""
        return self._streams.num_bytes

    @property
    def busiest_thread_seconds(self) -> float:
        """Always 0: there is no engine to change to."""
        return 0.0

    def require_good(self) -> None:
        """Raise `TestError` if the sender did not come."""
        if self._streams.error:
            raise TestError(f"native test: {self._streams.error}")

    async def stop(self) -> None:
        """End it."""
        await self._streams.stop()
        self._listener.close()

    def _accept_all(self) -> list[socket.socket]:
        """Accept the sender's connections; close all others."""
        accepted: list[socket.socket] = []
        try:
            while len(accepted) < NUM_STREAMS:
                if self._streams.is_stopping or time.monotonic() > self._until:
                    raise TimeoutError("the sender did not connect")
                try:
                    connection, (address, *_) = self._listener.accept()
                except TimeoutError:
                    continue
                if address == self._peer and self._is_authentic(connection):
                    accepted.append(connection)
                else:
                    connection.close()
        except BaseException:
            for connection in accepted:
                connection.close()
            raise
        finally:
            self._listener.close()
        return accepted

    def _is_authentic(self, connection: socket.socket) -> bool:
        connection.settimeout(PATIENCE)
        try:
            run_handshake(connection, respond(self.ticket))
        except (OSError, AuthenticationError):
            return False
        return True


class NativeSender:
    """The sending end of one test.

    Args:
        target: Where the receiver listens.
        source: The address to send from.
        ticket: The receiver's ticket.
        limit: Seconds after which it ends by itself.
        window: Bytes that each stream keeps under way at most; None: as many as the kernel allows.
    """

    def __init__(self, target: Endpoint, source: str, ticket: bytes, limit: float, window: int | None) -> None:
        self._target = target
        self._source = source
        self._ticket = ticket
        self._window = window
        self._streams = _Streams(self._connect_all, selectors.EVENT_WRITE, limit)
        self._streams.start()

    @property
    def is_over(self) -> bool:
        """True once it sends no more."""
        return self._streams.is_over

    @property
    def failure(self) -> str:
        """The reason why it ended by itself before its time; empty if it did not."""
        return self._streams.error and f"native test: {self._streams.error}"

    @property
    def busiest_thread_seconds(self) -> float:
        """Always 0: there is no engine to change to."""
        return 0.0

    async def stop(self) -> str:
        """End it; return why it failed, empty if it did not."""
        await self._streams.stop()
        return self.failure

    def _connect_all(self) -> list[socket.socket]:
        with contextlib.ExitStack() as opened:
            connections = [opened.enter_context(self._connect()) for _ in range(NUM_STREAMS)]
            opened.pop_all()
        return connections

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if self._window:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._window)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
            connection.settimeout(PATIENCE)
            connection.bind((self._source, 0))
            connection.connect((self._target.host, self._target.port))
            run_handshake(connection, initiate(self._ticket))
        except BaseException:
            connection.close()
            raise
        return connection
