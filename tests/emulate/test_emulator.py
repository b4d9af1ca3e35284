"""The emulated network, seen from processes on its hosts: ping, iperf3 and datagrams of our own."""

import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from all_hosts_send import listening_server, result_of, start_client
from kit.validated_network import PATIENCE, on_a_network
from trimtab_api.errors import UserError
from trimtab_netmon.emulate import Emulator, Link, Network, Phase, RelayError, available, build, namespaces

pytestmark = [pytest.mark.namespaces, pytest.mark.timeout(600 + PATIENCE)]

MBPS = 1e6 / 8
TOLERANCE = 0.1
"""Of bandwidth, and of latency where that is more than 1 ms."""


def steady(latency: float, bandwidth: float, **particular) -> Network:
    return Network((Phase(60.0, latency, bandwidth, **particular),))


def pings(
    network: Emulator,
    source: int,
    destination: int,
    count: int = 10,
    interval: float = 0.05,
    size: int = 56,
    at_once: int = 1,
) -> list[tuple[float, float]]:
    """(seconds on the schedule's clock when it was sent, round trip in seconds) of each ping."""
    to_schedule = network.elapsed - time.time()
    options = ["-c", str(count), "-i", str(interval), "-s", str(size), "-l", str(at_once)]
    argv = ["ping", "-D", *options, network.hosts[destination].address]
    done = subprocess.run(network.command(source, argv), capture_output=True, text=True, timeout=60, check=True)
    answers = [(float(a), float(b) / 1e3) for a, b in re.findall(r"\[([\d.]+)\].*time=([\d.]+)", done.stdout)]
    return [(received + to_schedule - rtt, rtt) for received, rtt in answers]


def median_ping(network: Emulator, source: int, destination: int, **options: int) -> float:
    times = sorted(rtt for _, rtt in pings(network, source, destination, **options))
    return times[len(times) // 2]


def rates(network: Emulator, *pairs: tuple[int, int]) -> list[float]:
    """Bytes per second that each flow of ``(source, destination)`` gets, all of them at the same time."""
    with ExitStack() as stack:
        for port, (_, destination) in enumerate(pairs, 5201):
            stack.enter_context(listening_server(network, destination, port))
        clients = [
            stack.enter_context(start_client(network, source, destination, port, "-t3", "-O1"))
            for port, (source, destination) in enumerate(pairs, 5201)
        ]
        return [result_of(client)["sum_received"]["bits_per_second"] / 8 for client in clients]


def assert_round_trip(network: Emulator, source: int, destination: int, seconds: float, **options: int) -> None:
    measured = median_ping(network, source, destination, **options)
    assert measured == pytest.approx(seconds, rel=TOLERANCE, abs=1e-3)


@pytest.mark.parametrize("latency", [0.0, 0.002, 0.025])
def test_a_ping_takes_the_latency_twice(latency: float):
    on_a_network(steady(latency, 1000 * MBPS), 3, lambda network: assert_round_trip(network, 0, 2, 2 * latency))


def test_a_message_takes_the_latency_and_its_size_over_the_bandwidth():
    size, bandwidth = 50000, 50 * MBPS
    seconds = 2 * (0.005 + size / bandwidth)
    on_a_network(steady(0.005, bandwidth), 2, lambda network: assert_round_trip(network, 0, 1, seconds, size=size))


def test_a_link_can_have_its_own_latency_in_one_direction():
    def check(network: Emulator) -> None:
        assert_round_trip(network, 0, 1, 0.025)
        assert_round_trip(network, 1, 0, 0.025)
        assert_round_trip(network, 0, 2, 0.010)

    on_a_network(steady(0.005, 1000 * MBPS, links=(Link(0, 1, latency=0.020),)), 3, check)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([(0, 1)], id="one flow"),
        pytest.param([(0, 1), (0, 2)], id="two flows out of one host"),
        pytest.param([(0, 2), (1, 2)], id="two flows into one host"),
        pytest.param([(0, 1), (0, 1), (0, 1)], id="three flows between two hosts"),
    ],
)
def test_all_flows_of_a_host_share_its_bandwidth(pairs: list[tuple[int, int]]):
    def check(network: Emulator) -> None:
        assert sum(rates(network, *pairs)) == pytest.approx(100 * MBPS, rel=TOLERANCE)

    on_a_network(steady(0.002, 100 * MBPS), 3, check)


@pytest.mark.slow
def test_out_and_in_are_separate_limits():
    def check(network: Emulator) -> None:
        assert rates(network, (0, 1), (1, 0)) == pytest.approx([100 * MBPS, 100 * MBPS], rel=TOLERANCE)

    on_a_network(steady(0.002, 100 * MBPS), 2, check)


@pytest.mark.slow
def test_hosts_and_links_can_have_limits_of_their_own():
    def check(network: Emulator) -> None:
        assert rates(network, (0, 1), (1, 2)) == pytest.approx([20 * MBPS, 50 * MBPS], rel=TOLERANCE)

    particular = {"hosts": {2: 50 * MBPS}, "links": (Link(0, 1, bandwidth=20 * MBPS),)}
    on_a_network(steady(0.001, 100 * MBPS, **particular), 3, check)


@pytest.mark.slow
def test_one_flow_fills_a_long_fat_link():
    def check(network: Emulator) -> None:
        assert rates(network, (0, 1)) == pytest.approx([1000 * MBPS], rel=TOLERANCE)

    on_a_network(steady(0.025, 1000 * MBPS), 2, check)


@pytest.mark.slow
def test_a_full_host_does_not_hide_the_latency():
    def check(network: Emulator) -> None:
        with listening_server(network, 1, 5201), start_client(network, 0, 1, 5201, "-t5") as client:
            wait_until(lambda: network.lag().hosts[0].sent_bytes > 2e6, "the flow has filled the gate")
            assert_round_trip(network, 0, 1, 0.010)
            assert_round_trip(network, 0, 1, 0.010, at_once=10)  # acknowledgements come in bursts, too
            assert result_of(client)["sum_received"]["bits_per_second"] / 8 == pytest.approx(50 * MBPS, rel=TOLERANCE)

    on_a_network(steady(0.005, 50 * MBPS), 2, check)


def test_phases_change_on_time():
    latencies = (0.001, 0.020, 0.005)
    network = Network(tuple(Phase(1.0, latency, 1000 * MBPS) for latency in latencies), repeat=True)

    def check(emulator: Emulator) -> None:
        assert emulator.elapsed == 0
        emulator.begin()
        answers = pings(emulator, 0, 1, count=160, interval=0.025)
        assert {network.at(sent).latency for sent, _ in answers} == set(latencies)
        off = [
            (sent, rtt)
            for sent, rtt in answers
            if network.at(sent - 0.005) == network.at(sent + 0.045)  # the round trip lies within one phase
            and rtt != pytest.approx(2 * network.at(sent).latency, rel=TOLERANCE, abs=1e-3)
        ]
        # A busy machine holds up a ping now and then; a phase 100 ms early or late would put a tenth of them off.
        assert len(off) <= 0.05 * len(answers), off

    on_a_network(network, 2, check)


def test_before_begin_the_first_phase_holds():
    network = Network((Phase(0.001, 0.010, 1000 * MBPS), Phase(1.0, 0.001, 1000 * MBPS)))

    def check(emulator: Emulator) -> None:
        assert_round_trip(emulator, 0, 1, 0.020)
        assert emulator.phase is network.phases[0]
        emulator.begin()
        wait_until(lambda: emulator.lag().phase == 1, "the relay has put the second phase in force")
        assert emulator.phase is network.phases[1]
        assert_round_trip(emulator, 0, 1, 0.002)

    on_a_network(network, 2, check)


RECEIVE = """
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.settimeout(20)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: all of them, should this process not be let run
receiver.bind(("", 5000))
print("listening", flush=True)
for _ in range(int(sys.argv[1])):
    print(int.from_bytes(receiver.recv(65536)[:4], "big"))
"""
SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((sys.argv[1], 5000))
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    sender.send(number.to_bytes(4, "big") * int(sys.argv[4 + number % 2]))
"""


def send(network: Emulator, numbers: range, even_size: int, odd_size: int) -> None:
    """Send numbered datagrams from host 0 to host 1, of two sizes in turn."""
    arguments = [network.hosts[1].address, *map(str, (numbers.start, numbers.stop, even_size // 4, odd_size // 4))]
    subprocess.run(network.command(0, [sys.executable, "-c", SEND, *arguments]), check=True, timeout=60)


def test_a_flow_keeps_its_order_whatever_its_packets_sizes_and_though_the_latency_falls():
    network = Network((Phase(0.001, 3.0, 200 * MBPS), Phase(60.0, 0.001, 200 * MBPS)))
    with Emulator(network, hosts=2, name="test") as emulator:
        receive = emulator.command(1, [sys.executable, "-c", RECEIVE, "200"])
        with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout.readline() == "listening\n"
            send(emulator, range(100), 20000, 100)
            emulator.begin()
            wait_until(lambda: emulator.lag().phase == 1, "the relay has put the second phase in force")
            send(emulator, range(100, 200), 20000, 100)
            assert [int(line) for line in receiver.communicate(timeout=60)[0].split()] == list(range(200))
            assert emulator.lag().packet_lag.max < 1.0, "what is held back for the sake of order is not late"


def test_a_full_gate_drops_what_arrives():
    with Emulator(steady(0.001, 1 * MBPS), hosts=2, name="test") as emulator:
        size, batch = 60000, 300
        for first in range(0, 5 * batch, batch):
            send(emulator, range(first, first + batch), size, size)
            sent = first + batch
            wait_until(lambda sent=sent: emulator.lag().hosts[0].sent_packets == sent, "the relay has read all")
        traffic = emulator.lag().hosts
        assert traffic[0].dropped_egress > 0
        assert traffic[0].sent_bytes - traffic[0].dropped_egress * size >= 64e6
        assert (traffic[1].dropped_ingress, traffic[0].unroutable) == (0, 0)


def test_the_report_counts_what_each_host_sent_and_received():
    with Emulator(steady(0.001, 1000 * MBPS), hosts=2, name="test") as emulator:
        pings(emulator, 0, 1, count=3)
        report = emulator.lag()
        ping_bytes = 84
        for host in report.hosts:
            assert (host.sent_packets, host.sent_bytes) == (6 // 2, 3 * ping_bytes)
            assert (host.received_packets, host.received_bytes) == (3, 3 * ping_bytes)
        assert report.packet_lag.samples == 6
        emulator.begin()
        assert emulator.lag().hosts[0].sent_packets == 0


def test_a_packet_to_nobody_is_counted():
    with Emulator(steady(0.001, 1000 * MBPS), hosts=2, name="test") as emulator:
        ping = ["ping", "-c", "1", "-W", "1", "10.77.0.99"]
        assert subprocess.run(emulator.command(0, ping), stdout=subprocess.DEVNULL, timeout=20).returncode == 1
        assert emulator.lag().hosts[0].unroutable == 1


def test_several_emulators_do_not_meet():
    def check(one: Emulator) -> None:
        with Emulator(steady(0.010, 1000 * MBPS), hosts=2, name="test") as other:
            assert one.hosts[1].address == other.hosts[1].address
            assert_round_trip(one, 0, 1, 0.002)
            assert_round_trip(other, 0, 1, 0.020)

    on_a_network(steady(0.001, 1000 * MBPS), 2, check)


def test_the_relay_answers_from_any_thread():
    with Emulator(steady(0.001, 1000 * MBPS), hosts=2, name="test") as emulator:
        reports = []
        threads = [threading.Thread(target=lambda: reports.append(emulator.lag())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        assert len(reports) == 8


def test_the_loopback_of_a_host_is_up():
    with Emulator(steady(0.010, 1 * MBPS), hosts=1, name="test") as emulator:
        ping = emulator.command(0, ["ping", "-c", "1", "-W", "1", "127.0.0.1"])
        assert subprocess.run(ping, stdout=subprocess.DEVNULL, timeout=20).returncode == 0


@pytest.mark.parametrize("hosts", [0, 33])
def test_too_few_or_too_many_hosts(hosts: int):
    with pytest.raises(UserError, match=f"^hosts: '{hosts}': write 1 to 32$"):
        Emulator(steady(0.001, MBPS), hosts=hosts)


def test_an_emulator_that_does_not_run_says_so():
    with pytest.raises(RuntimeError, match="call start"):
        Emulator(steady(0.001, MBPS)).lag()


def test_a_relay_that_died_is_reported_and_cleaned_up():
    emulator = Emulator(steady(0.001, MBPS), hosts=2, name="test")
    with emulator:
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and is_relay_of(process, emulator.hosts[0].namespace):
                os.kill(int(process.name), 9)
        with pytest.raises(RelayError, match="relay ended: exit code -9"):
            emulator.lag()
    assert not namespaces.path_of(emulator.hosts[0].namespace).exists()


class TestAvailable:
    def test_here_it_is(self):
        assert available() is None

    def test_without_root(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert available() == "the network emulator needs root; run as root or with sudo"

    def test_without_iproute2(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setenv("PATH", str(tmp_path))
        assert available() == "the network emulator needs the command ip; install the package iproute2"

    def test_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setattr(build, "COMPILER", "no-such-compiler")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        reason = "the network emulator needs a C compiler for its relay; install the packages gcc and libc6-dev"
        assert available() == reason
        with pytest.raises(UserError, match="needs a C compiler"):
            Emulator(steady(0.001, MBPS)).start()

    @pytest.mark.parametrize(
        ("without", "why"),
        [
            (
                ["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/net/tun && exec "$@"', "sh"],
                "ioctl(TUNSET",
            ),
            (["setpriv", "--bounding-set=-net_admin"], "ioctl(TUNSETIFF): Operation not permitted"),
        ],
        ids=["device", "right"],
    )
    def test_without_a_tun_device_that_works(self, without: list[str], why: str):
        program = "from trimtab_netmon.emulate import available; print(available())"
        argv = [*without, sys.executable, "-c", program]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
        assert said.startswith(f"the network emulator cannot make a TUN device here ({why}")
        assert said.endswith(
            "); load the kernel module tun, give the container the device /dev/net/tun, and grant CAP_NET_ADMIN\n"
        )


def test_what_the_machine_refuses_only_once_it_is_begun_is_one_line_as_well():
    script = 'mkdir -p /run/netns && mount -t tmpfs -o ro none /run/netns && exec "$@"'
    program = (
        "from trimtab_api.errors import UserError\n"
        "from trimtab_netmon.emulate import Emulator, Network, Phase\n"
        "try:\n"
        "    Emulator(Network((Phase(60.0, 0.001, 1e6),)), hosts=2, name='test').start()\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", program]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("the network emulator does not start here (ip netns add trimtab-test-")
    assert "Read-only file system); let it make network namespaces in /run/netns" in said
    assert said.endswith(", or run on loopback\n")


def test_a_relay_is_compiled_once_and_a_compiler_that_fails_gets_one_line(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = build.build_relay()
    assert built.is_relative_to(tmp_path)
    monkeypatch.setattr(build, "COMPILER", "false")
    assert build.build_relay() == built
    built.unlink()
    with pytest.raises(UserError, match=r"^false: .*does not compile; install .* \(exit code 1\)$"):
        build.build_relay()
    assert list(built.parent.iterdir()) == []


def is_relay_of(process: Path, namespace: str) -> bool:
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return str(namespaces.path_of(namespace)).encode() in command and b"relay-" in command[0]


def wait_until(condition, what: str, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.01)
