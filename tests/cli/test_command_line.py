"""The command line by itself: it answers at once, and says mistakes in one line with exit code 2."""

import json
import subprocess
import sys

import pytest
from trimtab.cli.main import BENCHES, COMMANDS, main

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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: COMMAND; see `trimtab --help`"),
        (["rnu"], "argument COMMAND: invalid choice: 'rnu'"),
        (["run"], "the following arguments are required: job; see `trimtab run --help`"),
        (["run", "job.yaml", "--nope"], "unrecognized arguments: --nope; see `trimtab --help`"),
        (["run", "missing.yaml"], "missing.yaml: cannot be read"),
        (["run", "job.yaml", "--plan", "2/all-gather"], "--plan: '2/all-gather': a compression ratio is in (0, 1]"),
        (["run", "job.yaml", "--plan", "0.1/all-together"], "--plan: '0.1/all-together': not known; choose from"),
        (["run", "job.yaml", "--network", "missing-net.yaml"], "missing-net.yaml: "),
        (["run", "job.yaml"], "spec.template.spec.containers[trainer].command: 'CMD': no such program here"),
        (["compare", "job.yaml"], "the following arguments are required: --out; see `trimtab compare --help`"),
        (["compare", "job.yaml", "--out", "o", "--plans", "adaptive,"], "--plans: "),
        (["compare", "job.yaml", "--out", "job.yaml"], "--out: 'job.yaml': is not a directory"),
        (["compare", "job.yaml", "--out", "o", "--target", "x"], "argument --target: invalid float value: 'x'"),
        (["report", "missing"], "missing: no such directory"),
        (["report", "."], ".: holds neither comparison.json nor result.json"),
        (["bench", "everything"], "argument COMMAND: invalid choice: 'everything'"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"trimtab: {complaint}")


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


def test_a_container_may_not_set_what_the_launcher_sets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    job = JOB.replace("command: [CMD]", "command: [python], env: [{name: RANK, value: '3'}]")
    (tmp_path / "job.yaml").write_text(job)
    assert main(["run", "job.yaml"]) == 2
    assert "env[0]: 'RANK': is set by the launcher; remove it" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("trimtab 0.")
