"""Byte counters of one network device: readings, load, and the device of an address."""

from __future__ import annotations

import array
import asyncio
import fcntl
import ipaddress
import itertools
import math
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trimtab_api.errors import UserError

#: Seconds between two readings.
SAMPLE_INTERVAL = 0.025
#: A reading is recent for this many seconds: whoever asks for a recent one does not read the counters anew.
RECENT = 0.005
#: Seconds of readings that are kept.
HISTORY = 2.0
#: An interface that moves more than this share of what a link carries is busy, as far as that link goes.
BUSY_SHARE = 0.2

#: A reading that took longer [seconds] was interrupted, and nobody knows when the counters were read.
PROMPT = 2e-3
_TRIES = 3

#: The kernel's table for this process's own network namespace; /sys/class/net may be another's.
_COUNTERS = Path("/proc/self/net/dev")


@dataclass(frozen=True)
class Reading:
    """The counters at one moment."""

    at: float
    """Monotonic seconds."""
    received: int
    """Bytes since the device came up."""
    sent: int
    """Bytes since the device came up."""


def read_counters(interface: str, table: BinaryIO | None = None) -> Reading:
    """Read the counters, from the kernel's ``table`` if it is open already.

    Raises:
        UserError: If there is no such device.
    """
    if table is None:
        with _COUNTERS.open("rb", buffering=0) as opened:
            return read_counters(interface, opened)
    for _ in range(_TRIES):
        before = time.monotonic()
        table.seek(0)
        text = table.read()
        after = time.monotonic()
        if after - before < PROMPT:
            break
    for line in text.splitlines():
        name, colon, counts = line.partition(b":")
        if colon and name.strip() == interface.encode():
            fields = counts.split()
            return Reading((before + after) / 2, int(fields[0]), int(fields[8]))
    raise UserError("no such network device here; see `ip link`", field="--interface", value=interface)


class InterfaceWatch:
    """Recent readings of one device, taken while `run` runs."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self._table = _COUNTERS.open("rb", buffering=0)
        self._readings: deque[Reading] = deque([read_counters(interface, self._table)])
        self.capacity = 0.0
        """Bytes per second that the fastest of its links carries; 0: not known."""

    def read(self) -> Reading:
        """Take a reading and keep it with the others."""
        reading = read_counters(self.interface, self._table)
        self._readings.append(reading)
        while self._readings[0].at < reading.at - HISTORY:
            self._readings.popleft()
        return reading

    def recent(self) -> Reading:
        """Return a reading of the last `RECENT` seconds."""
        newest = self._readings[-1]
        return newest if time.monotonic() - newest.at < RECENT else self.read()

    async def run(self) -> None:
        """Keep reading."""
        while True:
            self.read()
            await asyncio.sleep(SAMPLE_INTERVAL)

    def was_busy(self, since: float, capacity: float) -> bool:
        """Return whether the device was busy in any interval between readings that reaches past ``since``.

        All of the device's traffic counts, since all of it may be on one link. The same traffic may fill a slow link
        and leave a fast one nearly idle.

        Args:
            since: Monotonic seconds.
            capacity: Bytes/s of the link; 0: not known, and nothing counts as busy.
        """
        if capacity == 0:
            return False
        most = BUSY_SHARE * capacity
        after = self.recent()
        for before in itertools.islice(reversed(self._readings), 1, None):
            if after.at <= since:
                return False
            limit = most * max(after.at - before.at, 1e-3)
            if after.received - before.received > limit or after.sent - before.sent > limit:
                return True
            after = before
        return False

    def sending_rate(self, window: float) -> float:
        """Return the bytes/s sent over the last ``window`` seconds; 0 while the readings span less."""
        self.read()
        _, sent = _rates(list(self._readings), window)
        return sent

    def least_sent(self, window: float, since: float) -> float:
        """Return the bytes/s that left in the idlest ``window`` seconds since a moment; infinite: no such window."""
        self.read()
        readings = [reading for reading in self._readings if reading.at >= since]
        spans = (readings[: end + 1] for end in range(len(readings)))
        return min((_rates(span, window)[1] for span in spans if span[-1].at - span[0].at >= window), default=math.inf)

    def most_received(self, window: float) -> float:
        """Return the bytes/s that arrived in the busiest ``window`` seconds of the readings; 0 if they span less."""
        readings = list(self._readings)
        return max(_rates(readings[: end + 1], window)[0] for end in range(len(readings)))


def _rates(readings: list[Reading], window: float) -> tuple[float, float]:
    """Return the bytes/s received and sent over the last ``window`` seconds; zeros if the readings span less."""
    now = readings[-1]
    for before in reversed(readings):
        if (elapsed := now.at - before.at) >= window:
            return (now.received - before.received) / elapsed, (now.sent - before.sent) / elapsed
    return 0.0, 0.0


#: Linux's request for the addresses of all devices, which Python does not name.
_SIOCGIFCONF = 0x8912
#: A device's name (a label, such as ``eth0:1``, for some addresses) and a socket address, as the kernel lays them out.
_ENTRY = struct.Struct("16s4x4s16x")
_MOST_ADDRESSES = 1024


def device_addresses() -> list[tuple[str, str]]:
    """Return every IPv4 address of this network namespace, with the device that has it."""
    buffer = array.array("B", bytes(_ENTRY.size * _MOST_ADDRESSES))
    address, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFCONF, struct.pack("iP", size, address))
    used, _ = struct.unpack("iP", answer)
    return [
        (label.partition(b"\0")[0].partition(b":")[0].decode(), socket.inet_ntoa(ip))
        for label, ip in _ENTRY.iter_unpack(buffer.tobytes()[:used])
    ]


def first_usable(names: str) -> str:
    """Return the first of some network devices, separated by commas, that has an IPv4 address, as ranks choose theirs.

    A single name is taken as it is.

    Raises:
        UserError: If none of several has an address.
    """
    if "," not in names:
        return names
    devices = dict.fromkeys(device for device, _ in device_addresses())
    for name in names.split(","):
        if name.strip() in devices:
            return name.strip()
    raise UserError(
        f"names no network device with an IPv4 address; choose from {', '.join(devices)}",
        field="--interface",
        value=names,
    )


def require_device_of(listen: str, interface: str) -> None:
    """Check that traffic to the address ``listen`` passes the device whose counters are read.

    An address that is not this machine's is left alone: listening on it fails by itself, with a message of its own.

    Raises:
        UserError: If it passes another device.
    """
    if listen == "0.0.0.0":  # noqa: S104 - compared, not bound
        return
    try:
        ip = ipaddress.ip_address(socket.gethostbyname(listen))
    except OSError:
        return
    addresses = device_addresses()
    loopbacks = {device for device, address in addresses if ipaddress.ip_address(address).is_loopback}
    devices = loopbacks if ip.is_loopback else {device for device, address in addresses if address == str(ip)}
    if devices and interface not in devices:
        raise UserError(
            f"does not have the address {ip} of --listen, so its counters are of other traffic; "
            f"name the device that has it: {', '.join(sorted(devices))}",
            field="--interface",
            value=interface,
        )
