"""What `trimtab bench collectives --out` promises: nothing that was measured is lost, or measured again.

No network is emulated here: the times are made up.
"""

import json

import pytest
from trimtab.cli.bench import collectives as bench_collectives
from trimtab.cli.main import main
from trimtab.evaluation.bench import exchange_times
from trimtab_api.errors import UserError

NETWORKS = {2: (("1ms", "1Gbps"), ("5ms", "100Mbps")), 4: (("5ms", "100Mbps"),)}
ALL = ["2 hosts, 0.001 s", "2 hosts, 0.005 s", "4 hosts, 0.005 s"]


class Hosts:
    """What would run on emulated hosts."""

    def __init__(self):
        self.measured, self.failing = [], ""

    def __call__(self, network, num_hosts, module, arguments, timeout):
        name = f"{num_hosts} hosts, {network.phases[0].latency:g} s"
        if name == self.failing:
            raise UserError("rank 1 ended", field="bench")
        self.measured.append(name)
        told = dict(zip(arguments[::2], arguments[1::2], strict=True))
        plans = [
            f"{ratio}/{each}" for ratio in told["--ratios"].split(",") for each in told["--collectives"].split(",")
        ]
        times = {plan: {"select": 0.01, "wire": 0.1 + i / 50, "whole": 0.2} for i, plan in enumerate(plans)}
        return {"floor": 0.01, "plans": times}


@pytest.fixture
def hosts(monkeypatch):
    hosts = Hosts()
    monkeypatch.setattr(exchange_times, "run_on_hosts", hosts)
    monkeypatch.setattr(bench_collectives, "NETWORKS", NETWORKS)
    monkeypatch.setattr(bench_collectives, "CALIBRATION", ((2, "1ms", "1Gbps", "0.1"),))
    return hosts


@pytest.fixture
def bench(hosts, tmp_path):
    """Runs the bench with a file that keeps what is measured; the exit code."""
    return lambda *arguments: main(["bench", "collectives", "--json", "--out", str(tmp_path / "out.jsonl"), *arguments])


def test_what_was_measured_before_a_failure_is_kept_and_not_measured_again(hosts, bench, capsys):
    hosts.failing = ALL[1]
    assert bench() == 2
    hosts.failing = ""
    assert bench() == 0
    assert hosts.measured == ALL
    whole = json.loads(capsys.readouterr().out)
    assert bench() == 0, "all of it is kept"
    assert hosts.measured == ALL
    assert json.loads(capsys.readouterr().out) == whole


def test_some_networks_are_measured_now_and_stderr_tells_how_far_it_is(hosts, bench, capsys):
    assert bench("--networks", "2") == 0
    assert hosts.measured == ALL[:2]
    told = capsys.readouterr()
    assert told.out == ""
    assert [line for line in told.err.splitlines() if "measuring" not in line] == [
        "trimtab: 2 hosts, 1ms, 1Gbps: measured in 0 s",
        "trimtab: 2 hosts, 5ms, 100Mbps: measured in 0 s",
        told.err.splitlines()[-1],
    ]
    assert told.err.endswith("out.jsonl holds 2 of 3 networks; run it again for the others\n")
    assert bench("--networks", "2") == 0
    assert hosts.measured == ALL
    assert json.loads(capsys.readouterr().out)["cells"]


def test_some_networks_alone_need_a_file(hosts, capsys):
    assert main(["bench", "collectives", "--networks", "2"]) == 2
    assert capsys.readouterr().err == "trimtab: --networks: '2': needs --out FILE, which keeps what is measured\n"
    assert hosts.measured == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line | {"format": 2}, "line 1: format: '2': this version reads format 1; "),
        (lambda line: line | {"repeats": 3}, "line 1: repeats: '3': here it is 7; "),
        (lambda line: line | {"elements": 5}, "line 1: elements: '5': here it is 4000000; "),
        (
            lambda line: line | {"ranks": 6},
            "line 1: ranks, latency, bandwidth: '6, 1ms, 1Gbps': this bench has no such",
        ),
        (lambda line: line | {"floor": -1}, "line 1: floor: '-1': must be more than 0; "),
        (lambda line: line | {"floor": 0}, "line 1: floor: '0': must be more than 0; "),
        (lambda line: line | {"plans": {}}, "line 1: 0.1/all-gather: is missing; "),
        (lambda line: {"format": 1}, "line 1: ranks: is missing; "),
        (lambda line: [1], "line 1: '[1]': is not a JSON object; "),
        (lambda line: None, "line 1: 'null': is not a JSON object; "),
    ],
)
def test_a_file_of_something_else_is_refused_in_one_line(hosts, bench, tmp_path, capsys, change, message):
    assert bench("--networks", "1") == 0
    capsys.readouterr()
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(change(json.loads(path.read_text()))) + "\n")
    assert bench() == 2
    told = capsys.readouterr().err
    assert told.startswith(f"trimtab: {path}: {message}")
    assert told.endswith("; remove the line, or name another file\n")
    assert told.count("\n") == 1
    assert hosts.measured == ALL[:1]


def test_a_line_that_was_cut_off_is_refused(hosts, bench, tmp_path, capsys):
    assert bench("--networks", "1") == 0
    path = tmp_path / "out.jsonl"
    path.write_text(path.read_text()[:50])
    capsys.readouterr()
    assert bench() == 2
    assert "is not JSON; remove the line, or name another file\n" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(hosts, tmp_path, capsys):
    assert main(["bench", "collectives", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"trimtab: {tmp_path}: cannot be written (Is a directory); name another file\n"
    assert hosts.measured == []


def test_a_network_is_given_up_after_a_time_that_follows_from_what_is_sent_there():
    def most(bandwidth, repeats):
        return exchange_times.Measurement(
            8, "5ms", bandwidth, 4_000_000, repeats, ("0.1",), ("all-gather",)
        ).most_seconds

    by_the_closed_form = 7 * 2 * 0.1 * 16e6 / (50e6 / 8)
    assert most("50Mbps", 7) > exchange_times.START_SECONDS + 11 * by_the_closed_form
    assert most("500Mbps", 7) < most("50Mbps", 7) < most("50Mbps", 14)
