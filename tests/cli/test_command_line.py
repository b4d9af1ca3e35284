"""The command line by itself: it answers at once, and says mistakes in one line with exit code 2."""

import json
import subprocess
import sys

import pytest
from trimtab.cli import worker_command
from trimtab.cli.main import BENCHES, COMMANDS, main
from trimtab.launch.processes.interrupts import Interrupted
from trimtab_api.cli import Parser

HEAVY = ("torch", "pymoo", "matplotlib", "numba", "sklearn", "numpy", "grpc", "rich", "pydantic")

JOB = """
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: toy}
spec:
  workers: 2
  template: {spec: {containers: [{name: trainer, command: [CMD]}]}}
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["bench", "--help"], []])
def test_help_imports_nothing_heavy(arguments: list[str]):
    program = (
        "import json, sys\n"
        "from trimtab.cli.main import BENCHES, COMMANDS, main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        f"print(json.dumps(sorted(set(sys.modules) & set({HEAVY!r}))), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == []


NETWORK = """
apiVersion: trimtab.dev/v1alpha1
kind: Network
phases: [{duration: 1s, latency: 1ms, bandwidth: 1Gbps, links: [{from: 0, to: 2, latency: 2ms}]}]
"""
PLAN = ["plan", "--parameters=1M", "--workers=4", "--latency=1ms", "--bandwidth=1Gbps"]
DURATION = "write a duration such as 5ms or 2s (units: us, ms, s, min, h)"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND: is missing; see `trimtab --help`"),
        (["rnu"], "COMMAND: 'rnu': is not known; did you mean run?"),
        (
            ["frobnicate"],
            "COMMAND: 'frobnicate': is not known; choose from run, compare, judge, plan, network, report, trace,"
            " status, top, metrics, worker",
        ),
        (
            ["--bogus"],
            "--bogus: is no flag of `trimtab`; a command's own flags come after its name; see `trimtab --help`",
        ),
        (
            ["--network=n.yaml", "run", "good.yaml"],
            "--network: is no flag of `trimtab`; a command's own flags come after its name; see `trimtab --help`",
        ),
        (
            ["bench", "--json", "step"],
            "--json: is no flag of `trimtab bench`; a command's own flags come after its name; see `trimtab bench --h",
        ),
        (["bench"], "COMMAND: is missing; see `trimtab bench --help`"),
        (["bench", "everything"], "COMMAND: 'everything': is not known; choose from kernels, collectives, step"),
        (["run"], "JOB: is missing; see `trimtab run --help`"),
        (["run", ""], "JOB: is empty; write a path"),
        (["run", "job.yaml", "other.yaml"], "'other.yaml': is one argument too many; see `trimtab run --help`"),
        (["run", "job.yaml", "--nope"], "--nope: is no flag of `trimtab run`; choose from --network, --plan, --out"),
        (["run", "job.yaml", "--bogus"], "--bogus: is no flag of `trimtab run`; choose from --network, --plan, --out"),
        (
            ["run", "job.yaml", "-n", "net.yaml"],
            "-n: is no flag of `trimtab run`; choose from --network, --plan, --out",
        ),
        (["network", "--sed", "3"], "--sed: is no flag of `trimtab network`; did you mean --seed?"),
        (["report", "o", "--json"], "--json: is no flag of `trimtab report`; choose from --out"),
        (["worker", "--bogus"], "--bogus: is no flag of `trimtab worker`;"),
        (["run", "job.yaml", "--netwrk=n.yaml"], "--netwrk: is no flag of `trimtab run`; did you mean --network?"),
        (["run", "job.yaml", "--loop"], "--loop: is no flag of `trimtab run`; did you mean --loopback?"),
        (["run", "job.yaml", "--loopback=yes"], "--loopback: 'yes': takes no value; leave out =yes"),
        (["run", "job.yaml", "--out"], "--out: needs a value after it; see `trimtab run --help`"),
        (["run", "job.yaml", "--out", "--loopback"], "--out: needs a value after it; see `trimtab run --help`"),
        (["run", "job.yaml", "--loopback="], "--loopback: takes no value; leave out ="),
        (["top", "-A=yes"], "--all-namespaces/-A: 'yes': takes no value; leave out =yes"),
        (["run", "job.yaml", "--out", ""], "--out: is empty; write a path"),
        (["run", "job.yaml", "--network", ""], "--network: is empty; write a path"),
        (["run", "missing.yaml"], "missing.yaml: cannot be read (No such file or directory); check the path"),
        (["run", "net.yaml"], "net.yaml: kind: 'Network': is a network; give it to --network, and a TrainingJob here"),
        (["run", "good.yaml", "--plan", "2/all-gather"], "--plan: '2/all-gather': ratio: '2': a compression ratio is"),
        (
            ["run", "good.yaml", "--plan", "0.1/all-together"],
            "--plan: '0.1/all-together': collective: 'all-together': not",
        ),
        (
            ["run", "good.yaml", "--plan", "0.1/spardl:per_host=3"],
            "--plan: '0.1/spardl:per_host=3': sums on hosts of 3 ranks each, and here hosts have 1",
        ),
        (["run", "good.yaml", "--network", "missing-net.yaml"], "missing-net.yaml: cannot be read (No such file"),
        (["run", "good.yaml", "--network", "job.yaml"], "job.yaml: kind: 'TrainingJob': is a job; name a network file"),
        (
            ["run", "good.yaml", "--network", "net.yaml"],
            "net.yaml: phases[0].links[0].to: '2': there are 2 hosts, 0 to 1",
        ),
        (
            ["run", "good.yaml", "--network", "net.yaml", "--loopback"],
            "net.yaml: phases[0].links[0].to: '2': there are 2 hosts, 0 to 1",
        ),
        (
            ["run", "job.yaml"],
            "job.yaml: spec.template.spec.containers[trainer].command: 'CMD': no such program here; install it",
        ),
        (["compare", "job.yaml"], "--out: is missing; see `trimtab compare --help`"),
        (["run", "good.yaml", "--plan", ""], "--plan: is empty; write adaptive, dense or RATIO/COLLECTIVE such as"),
        (["compare", "good.yaml", "--out", "o", "--plans", ""], "--plans: is empty; write adaptive, dense, RATIO/COLL"),
        (
            ["compare", "good.yaml", "--out", "o", "--plans", "adaptive,"],
            "--plans: is empty; write adaptive, dense, RA",
        ),
        (
            ["compare", "good.yaml", "--out", "o", "--plans", "dense,dense-ring"],
            "--plans: 'dense-ring': is dense, which is named already; leave out one",
        ),
        (["compare", "good.yaml", "--out", "o", "--plans", "dense,dense"], "--plans: 'dense': is named twice; leave"),
        (["compare", "good.yaml", "--out", "job.yaml"], "--out: 'job.yaml': is not a directory"),
        (["compare", "good.yaml", "--out", "/proc/nothing"], "--out: '/proc/nothing': cannot be written"),
        (["compare", "good.yaml", "--out", "o", "--target", "x"], "--target: 'x': write a number such as 0.97"),
        (["compare", "good.yaml", "--out", "o", "--target", ""], "--target: is empty; write a number such as 0.97"),
        (["compare", "good.yaml", "--out", "o", "--target", "inf"], "--target: 'inf': write a number such as 0.97"),
        (
            ["compare", "good.yaml", "--out", "o", "--target", "1.97"],
            "--target: '1.97': an accuracy is a share, more than 0 and at most 1, such as 0.97",
        ),
        (["report", ""], "DIRECTORY: is empty; write a path"),
        (["report", "x" * 300], f"{'x' * 300}: no such directory"),
        (["run", "x" * 300], f"{'x' * 300}: cannot be read (File name too long)"),
        (["run", "good.yaml", "--out", "x" * 300], f"--out: '{'x' * 160}...': cannot be written (File name too long)"),
        (["compare", "good.yaml", "--out", "x" * 300], f"--out: '{'x' * 160}...': cannot be written (File name too"),
        (["status", "x" * 300], f"RUN: '{'x' * 160}...': no run goes on there"),
        (["report", "missing"], "missing: no such directory"),
        (["report", "job.yaml"], "job.yaml: is a file; name a directory that"),
        (["report", "."], ".: holds neither comparison.json nor result.json"),
        (["plan"], "--workers, --latency, --bandwidth: are missing; see `trimtab plan --help`"),
        (PLAN[:1] + PLAN[2:], "--parameters, --model-size: one of them is missing; see `trimtab plan --help`"),
        ([*PLAN, "--model-size=1MB"], "--model-size: cannot stand beside --parameters; leave out one of them"),
        ([*PLAN, "--parameters", "1.5"], "--parameters: '1.5': write a whole number, or a count such as 25.6M or 7B"),
        ([*PLAN, "--parameters", "-5M"], "--parameters: '-5M': write a whole number, or a count such as"),
        ([*PLAN, "--parameters", "20000B"], "--parameters: '20000B': a model has 1 to 10,000,000,000,000 parameters"),
        ([*PLAN, "--workers", "2.5"], "--workers: '2.5': write a whole number from 2 to 65536"),
        ([*PLAN, "--workers", "1"], "--workers: '1': write a whole number from 2 to 65536"),
        ([*PLAN, "--workers", "99999"], "--workers: '99999': write a whole number from 2 to 65536"),
        ([*PLAN, "--latency", ""], f"--latency: is empty; {DURATION}"),
        ([*PLAN, "--workers", ""], "--workers: is empty; write a whole number from 2 to 65536"),
        ([*PLAN, "--parameters", ""], "--parameters: is empty; write a whole number, or a count such as 25.6M or 7B"),
        ([*PLAN, "--latency", "-5ms"], f"--latency: '-5ms': {DURATION}"),
        ([*PLAN, "--latency", "1h"], "--latency: '1h': write 0us to 10s"),
        ([*PLAN, "--bandwidth", "1bps"], "--bandwidth: '1bps': write 1kbps to 10000Gbps"),
        ([*PLAN, "--bandwidth", "1GB"], "--bandwidth: '1GB': write a bandwidth such as 200Mbps or 1Gbps"),
        ([*PLAN, "--compute", "9h"], "--compute: '9h': write 0us to 3600s"),
        ([*PLAN, "--ratio", "0.1", "nan"], "--ratio: 'nan': write a number such as"),
        ([*PLAN, "--ratio", "0.1", "-0.1"], "--ratio: '-0.1': a compression ratio is 0.000001 to 1"),
        ([*PLAN, "--ratio"], "--ratio: needs a value after it; see `trimtab plan --help`"),
        (["bench", "collectives", "--repeats", "0"], "--repeats: '0': write a whole number from 1 to 1000"),
        (["bench", "kernels", "--device", "rocm"], "--device: 'rocm': is not known; choose from cpu, cuda"),
        ([*PLAN, "--optimizer", "sdg"], "--optimizer: 'sdg': is not known; did you mean sgd?"),
        (["bench", "step", "--workers", "1"], "--workers: '1': write a whole number from 2 to 32"),
        (["bench", "step", "--steps", "-1"], "--steps: '-1': write a whole number from 1 to 1000"),
        (["bench", "step", "--plans", "adaptive"], "--plans: 'adaptive': chooses while it trains; name plans to"),
        (["bench", "step", "--plans", "0.1/gather"], "--plans: '0.1/gather': collective: 'gather': not known"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do_and_makes_nothing(
    arguments, complaint, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "good.yaml").write_text(JOB.replace("CMD", "python"))
    (tmp_path / "net.yaml").write_text(NETWORK)
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"trimtab: {complaint}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["good.yaml", "job.yaml", "net.yaml"]


@pytest.mark.parametrize("command", [c.name for c in COMMANDS if c.name != "bench"])
def test_every_command_has_help(command: str, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: trimtab {command}")


@pytest.mark.parametrize("bench", [bench.name for bench in BENCHES])
def test_every_bench_writes_json(bench: str, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["bench", bench, "--help"])
    assert "--json" in capsys.readouterr().out


def test_a_value_that_looks_like_a_flag_belongs_to_the_flag_before_it():
    parser = Parser(prog="trimtab")
    parser.add_argument("--latency")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(["--latency", "-5ms", "--json"])
    assert (args.latency, args.json) == ("-5ms", True)


def test_the_command_of_a_worker_keeps_all_its_arguments():
    parser = Parser(prog="trimtab worker")
    worker_command.add_arguments(parser)
    command = ["--", "python", "train.py", "--shift", "-5", "--json=1"]
    assert parser.parse_args(command).argv == command


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("trimtab 0.")


def test_an_interrupt_that_nobody_told_of_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(arguments: list[str]) -> int:
        raise Interrupted

    monkeypatch.setattr("trimtab.cli.main._dispatch", interrupted)
    assert main(["plan"]) == 130
    assert capsys.readouterr().err == "trimtab: interrupted\n"
