"""Real monitors, as processes on loopback, with real iperf3: what a trainer sees of them, and what a mistake says."""

import os
import socket
import subprocess
import sys
import time

import pytest
from kit.certificates import DAY, Authority
from trimtab_api.netmon.client import watch
from trimtab_netmon.main import main

MEASURED_WITHIN = 60
"""Seconds: generous, because every other test may be running beside this one."""


def free_port():
    """A TCP port such that it and its UDP namesake are free now."""
    while True:
        with socket.socket() as first, socket.socket(type=socket.SOCK_DGRAM) as echo:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                echo.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def command(rank, ports, *more):
    peers = ",".join(f"localhost:{port}" for port in ports)
    return [
        *(sys.executable, "-m", "trimtab_netmon.main", "serve", "--rank", str(rank), "--peers", peers),
        *("--listen", f"127.0.0.1:{ports[rank]}", "--interface", "lo", *more),
    ]


@pytest.fixture
def monitors():
    """Start monitors; whatever is still running afterwards is killed."""
    started = []

    def start(rank, ports, *more, **environment):
        process = subprocess.Popen(
            command(rank, ports, *more), stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(10)
        process.stderr.close()


def wait_for(condition, timeout=MEASURED_WITHIN):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.05)


@pytest.mark.slow
def test_every_monitor_shows_the_whole_network_and_measures_when_asked(monitors):
    ports = [free_port() for _ in range(3)]
    for rank in range(3):
        monitors(rank, ports)
    with watch(f"127.0.0.1:{ports[0]}") as first, watch(f"127.0.0.1:{ports[2]}") as last:
        view = last.wait_until_measured(MEASURED_WITHIN)
        assert view.is_measured
        assert 0 < view.latency < 0.05
        assert view.bandwidth > 10e6
        wait_for(lambda: first.view == last.view)
        measured = last.measure_now("a test asks", timeout=MEASURED_WITHIN)
        assert measured is not None
        assert measured.is_measured


@pytest.mark.slow
def test_monitors_with_certificates_show_the_network_to_their_job_alone(monitors, tmp_path, monkeypatch):
    authority = Authority.new()
    ports = [free_port() for _ in range(2)]
    certificates = str(authority.issue(tmp_path / "monitors"))
    for rank in range(2):
        monitors(rank, ports, TRIMTAB_TLS_DIR=certificates)
    monkeypatch.setenv("TRIMTAB_TLS_DIR", str(authority.issue(tmp_path / "trainer")))
    with watch(f"localhost:{ports[1]}") as network:
        assert network.wait_until_measured(MEASURED_WITHIN).is_measured
        assert network.problem == ""
    monkeypatch.setenv("TRIMTAB_TLS_DIR", str(Authority.new().issue(tmp_path / "stranger")))
    with watch(f"localhost:{ports[1]}") as network:
        wait_for(lambda: "another authority" in network.problem)
        assert network.view.revision == 0


def test_a_certificate_that_expired_is_one_line_and_exit_code_2(tmp_path):
    environment = {"TRIMTAB_TLS_DIR": str(Authority.new().issue(tmp_path / "tls", lifetime=-DAY))}
    argv = command(0, [free_port()])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment)
    assert done.returncode == 2
    assert done.stderr.startswith(f"trimtab-netmon: TRIMTAB_TLS_DIR: '{tmp_path}/tls/tls.crt': expired at ")


@pytest.mark.slow
def test_a_monitor_that_dies_makes_the_view_stale_and_its_return_fresh_again(monitors):
    ports = [free_port() for _ in range(2)]
    monitors(0, ports)
    second = monitors(1, ports)
    with watch(f"127.0.0.1:{ports[0]}") as network:
        assert network.wait_until_measured(MEASURED_WITHIN).is_measured
        wait_for(lambda: not network.view.stale)
        second.kill()
        wait_for(lambda: network.view.stale)
        again = monitors(1, ports)

        def is_fresh():
            assert again.poll() is None, again.stderr.read()
            return not network.view.stale

        wait_for(is_fresh)


@pytest.mark.slow
def test_monitors_whose_iperf3_is_broken_say_so_to_whoever_watches(monitors, tmp_path):
    broken = tmp_path / "iperf3"
    broken.write_text("#!/bin/sh\necho no such instruction >&2\nexit 1\n")
    broken.chmod(0o755)
    ports = [free_port() for _ in range(2)]
    for rank in range(2):
        monitors(rank, ports, PATH=f"{tmp_path}:{os.environ['PATH']}")
    with watch(f"127.0.0.1:{ports[1]}") as network:
        wait_for(lambda: "bandwidth tests failed" in network.problem)
        assert "no such instruction" in network.problem


@pytest.mark.slow
def test_a_budget_that_is_spent_refuses_to_measure_out_of_turn(monitors):
    ports = [free_port() for _ in range(2)]
    for rank in range(2):
        monitors(rank, ports, "--probe-budget", "0.0005")
    with watch(f"127.0.0.1:{ports[1]}") as network:
        assert network.wait_until_measured(MEASURED_WITHIN).is_measured
        assert network.measure_now("the budget is gone", timeout=MEASURED_WITHIN) is None
        assert network.view.is_measured


def test_a_watch_without_a_monitor_is_stale_and_closes():
    with watch(f"127.0.0.1:{free_port()}") as network:
        assert network.wait_until_measured(timeout=0.2).stale
        assert network.measure_now("nobody there", timeout=0.5) is None
        wait_for(lambda: "onnection refused" in network.problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"--rank": "5"},
            "--rank: '5': must be the position, from 0, of this worker in --peers, which lists 1 workers",
        ),
        ({"--listen": "127.0.0.1"}, "--listen: '127.0.0.1': write HOST:PORT, with a port from 1 to 65535"),
        ({"--peers": "a{2..1}:9"}, "--peers: 'a{2..1}:9': write a range that rises, of at most 100000 numbers"),
        ({"--listen": "fd00::1:9"}, "--listen: 'fd00::1:9': is an IPv6 address; a monitor speaks IPv4 alone"),
        ({"--peers": "a:b"}, "--peers: 'a:b': write HOST or HOST:PORT, with a port from 1 to 65535"),
        ({"--interface": "nodev0"}, "--interface: 'nodev0': no such network device here; see `ip link`"),
        (
            {"--probe-interval": "2"},
            "--probe-interval: '2': write a duration such as 5ms or 2s (units: us, ms, s, min, h)",
        ),
        ({"--probe-budget": "2"}, "--probe-budget: '2': must be more than 0 and at most 0.5"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(changes, message):
    argv = command(0, [free_port()], "--probe-interval", "2s", "--probe-budget", "0.02")
    for flag, value in changes.items():
        argv[argv.index(flag) + 1] = value
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, f"trimtab-netmon: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND: is missing; see `trimtab-netmon --help`"),
        (["serve"], "--rank, --peers, --listen, --interface: are missing; see `trimtab-netmon serve --help`"),
        (
            ["serve", "--rank=0", "--peers=a", "--interface=lo"],
            "--listen: is missing; see `trimtab-netmon serve --help`",
        ),
        (["serve", "--rank=x"], "--rank: 'x': write a whole number from 0 to 1000000"),
        (["serve", "--probe-budget=x"], "--probe-budget: 'x': write a number such as 0.02"),
        (["serve", "--rank", "-1"], "--rank: '-1': write a whole number from 0 to 1000000"),
        (
            ["serve", "--rank=0", "--peers=a", "--interface=lo", "--listen=b:1", "extra"],
            "'extra': is one argument too many; see `trimtab-netmon serve --help`",
        ),
        (["serve", "--probe=iperf"], "--probe: 'iperf': is not known; did you mean iperf3?"),
        (["serve", "--rank"], "--rank: needs a value after it; see `trimtab-netmon serve --help`"),
        (
            ["serve", "--rank=0", "--peers=a", "--interface=lo", "--listen=b:1", "--probe-intervall=2s"],
            "--probe-intervall: is no flag of `trimtab-netmon serve`; did you mean --probe-interval?",
        ),
    ],
)
def test_what_cannot_be_parsed_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"trimtab-netmon: {message}\n"


def test_a_busy_port_is_one_line_and_exit_code_2():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        done = subprocess.run(command(0, [port]), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"trimtab-netmon: --listen: '127.0.0.1:{port}': cannot listen there for ")
    assert done.stderr.endswith("stop what uses the port, or choose another\n")
    assert done.stderr.count("\n") == 1


def test_a_monitor_that_is_to_use_iperf3_says_where_it_is_missing(tmp_path):
    done = subprocess.run(
        command(0, [free_port(), free_port()], "--probe", "iperf3"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr == (
        "trimtab-netmon: iperf3 is not installed; install it (Debian: apt-get install iperf3) to measure bandwidth\n"
    )


@pytest.mark.slow
def test_monitors_without_iperf3_measure_by_themselves(monitors, tmp_path):
    ports = [free_port() for _ in range(2)]
    for rank in range(2):
        monitors(rank, ports, PATH=str(tmp_path))
    with watch(f"127.0.0.1:{ports[0]}") as network:
        view = network.wait_until_measured(MEASURED_WITHIN)
        assert view.bandwidth > 10e6
        assert view.bandwidth_method.startswith("native")


def test_without_peers_there_is_no_bandwidth_to_measure_and_no_iperf3_is_needed(monitors, tmp_path):
    ports = [free_port()]
    monitors(0, ports, PATH=str(tmp_path))
    with watch(f"127.0.0.1:{ports[0]}") as network:
        wait_for(lambda: not network.view.stale)


def test_ctrl_c_ends_a_monitor_cleanly(monitors):
    ports = [free_port()]
    process = monitors(0, ports)
    with watch(f"127.0.0.1:{ports[0]}") as network:
        wait_for(lambda: not network.view.stale)
    process.send_signal(2)
    assert process.wait(30) == 0
