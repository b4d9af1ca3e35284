"""The network emulator: N hosts on one machine, joined by a network whose latency and bandwidth change over time.

::

    with Emulator(load_network("changing.yaml"), hosts=4) as emulator:
        workers = [subprocess.Popen(emulator.command(i, ["python", "train.py"])) for i in range(4)]
        emulator.begin()

Each host is a network namespace with one address and one TUN device; the relay (``relay.c``) is the network between
them. Nothing outlives the process that made it, however that process ends.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from trimtab_api.errors import UserError
from trimtab_api.names import EMULATED_SUBNET

from trimtab_netmon.emulate import build, namespaces
from trimtab_netmon.emulate.relay import Relay, RelayError, RelayReport
from trimtab_netmon.emulate.schedule import Network, Phase

DEVICE = "tt0"
MAX_HOSTS = 32
#: Bytes. Few large packets cost the relay little, and TCP's windows grow in large steps (table `emulator` of
#: benchmarks/results).
MTU = 65000
#: Packets between kernel and relay; the kernel drops what finds no room, so whole windows have to fit.
DEVICE_QUEUE = 4000
#: Per host: buffers for 1 Gbit/s over a round trip of 50 ms twice over, windows that survive the pause between steps,
#: and a metrics cache that does not carry one phase's losses into the next connection.
SETTINGS = {
    "net/ipv4/tcp_rmem": "4096 4194304 33554432",
    "net/ipv4/tcp_wmem": "4096 262144 33554432",
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
}
#: Per host, where the kernel has IPv6 at all and lets it be switched off: its greetings are not part of the network.
OPTIONAL_SETTINGS = {"net/ipv6/conf/all/disable_ipv6": "1"}


@dataclass(frozen=True)
class Host:
    """One emulated machine."""

    name: str
    address: str
    """IPv4, the same in every emulator: namespaces keep them apart."""
    namespace: str
    """Named network namespace, as ``ip netns`` knows it."""
    device: str
    """The interface that leads to the other hosts (for GLOO_SOCKET_IFNAME)."""


def available() -> str | None:
    """Return None if the emulator can work here, else one sentence: what is missing and what to do."""
    if not sys.platform.startswith("linux"):
        return "the network emulator needs Linux; run on a Linux machine"
    if os.geteuid() != 0:
        return "the network emulator needs root; run as root or with sudo"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "the network emulator needs /dev/net/tun; load the kernel module tun or give the container the device"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"the network emulator needs the command {program}; install the package {package}"
    if shutil.which(build.COMPILER) is None and not build.relay_path().exists():
        return "the network emulator needs a C compiler for its relay; install the packages gcc and libc6-dev"
    private = ["unshare", "--net", "--mount"]  # gone, with all that is in it, when its one command has ended
    try:
        namespaces.run([*private, "true"])
    except namespaces.NamespaceError:
        return "the network emulator may not make network namespaces here; grant CAP_SYS_ADMIN and CAP_NET_ADMIN"
    try:
        # Tried, for root may open any file by its mode: the device may be dead, denied or without its module.
        namespaces.run([*private, "ip", "tuntap", "add", "dev", DEVICE, "mode", "tun"])
    except namespaces.NamespaceError as error:
        return (
            f"the network emulator cannot make a TUN device here ({error.words}); load the kernel module tun, give the "
            "container the device /dev/net/tun, and grant CAP_NET_ADMIN"
        )
    return None


class Emulator:
    """A context manager: inside it the hosts exist, and afterwards nothing of them does.

    Leaving it kills all processes that still run on the hosts.

    Raises:
        UserError: If this machine cannot emulate, or the network names a host that is not among ``hosts``.
    """

    def __init__(self, network: Network, hosts: int = 4, name: str = "tt") -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise UserError(f"write 1 to {MAX_HOSTS}", field="hosts", value=str(hosts))
        network.check_hosts(hosts)
        self.network = network
        addresses = [str(address) for _, address in zip(range(hosts), EMULATED_SUBNET.hosts(), strict=False)]
        self.hosts = [
            Host(f"host{i}", addresses[i], namespace, DEVICE)
            for i, namespace in enumerate(namespaces.new_names(name, hosts))
        ]
        self._relay: Relay | None = None
        self._begun: float | None = None

    def __enter__(self) -> Emulator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Make the hosts and the network between them, phase 0 in force."""
        if missing := available():
            raise UserError(missing)
        binary = build.build_relay()
        try:
            namespaces.sweep()
        except namespaces.NamespaceError as error:
            raise UserError(f"what an earlier run left cannot be removed: {error}") from error
        try:
            for host in self.hosts:
                namespaces.add(host.namespace)
            self._relay = Relay(binary, DEVICE, self.hosts[0].address, [host.namespace for host in self.hosts])
            for host in self.hosts:
                _set_up(host)
            self._relay.configure(self.network, len(self.hosts))
        except (RelayError, namespaces.NamespaceError) as error:
            self.close()
            raise UserError(
                f"the network emulator does not start here ({' '.join(str(error).split())}); let it make network "
                "namespaces in /run/netns and TUN devices in them (CAP_SYS_ADMIN, CAP_NET_ADMIN), or run on loopback"
            ) from error
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Start the schedule's clock; before it, phase 0 holds. The relay's report starts anew."""
        self._begun = self._running().begin()

    @property
    def elapsed(self) -> float:
        """Seconds on the schedule's clock; 0 before `begin`."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    @property
    def phase(self) -> Phase:
        """The phase in force."""
        return self.network.at(self.elapsed)

    def lag(self) -> RelayReport:
        """Return how late the relay was, and what it carried.

        Raises:
            RelayError: If the relay is gone.
        """
        return self._running().report()

    def command(self, host_index: int, argv: list[str]) -> list[str]:
        """Return the command that runs ``argv`` on a host; the process is its own, so signals reach it."""
        return namespaces.inside(self.hosts[host_index].namespace, argv)

    def namespace(self, host_index: int) -> Path:
        """Return the file of a host's network namespace, for setns(2)."""
        return namespaces.path_of(self.hosts[host_index].namespace)

    def close(self) -> None:
        """End everything on the hosts, the relay and the hosts themselves; closing twice does no harm."""
        relay, self._relay = self._relay, None
        try:
            if relay:
                relay.stop()
        finally:
            for host in self.hosts:
                namespaces.remove(host.namespace)

    def _running(self) -> Relay:
        if self._relay is None:
            raise RuntimeError("the emulator is not running; call start() first")
        return self._relay


def _set_up(host: Host) -> None:
    # The shell opens the files inside the namespace, where they are that namespace's. Settings come before the device
    # is up, so that not even a greeting of IPv6 crosses the network.
    write = "echo '{1}' > /proc/sys/{0}"
    script = "set -e\n" + "".join(f"{write.format(*setting)}\n" for setting in SETTINGS.items())
    script += "".join(f"({write.format(*setting)}) 2>/dev/null || true\n" for setting in OPTIONAL_SETTINGS.items())
    namespaces.run(namespaces.inside(host.namespace, ["sh", "-c", script]))
    namespaces.run(
        ["ip", "-netns", host.namespace, "-batch", "-"],
        stdin=f"link set lo up\n"
        f"address add {host.address}/{EMULATED_SUBNET.prefixlen} dev {host.device}\n"
        f"link set {host.device} mtu {MTU} txqueuelen {DEVICE_QUEUE} up\n",
    )
