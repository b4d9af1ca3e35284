"""What is written of a run while it trains."""

import json
import math
import subprocess
import sys

from trimtab.run_files import line_file
from trimtab.run_files.layout import RunDirectory
from trimtab.run_files.line_file import Tail, all_records
from trimtab.run_files.recorder import Recorder
from trimtab.run_files.steps import metric_kind


def test_a_value_that_is_not_finite_is_null_wherever_it_stands_and_every_line_is_there_at_once(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.metric({"loss": math.nan, "scheme": {"ratio": math.inf, "sums": [1.0, -math.inf]}})
    recorder.metric({"loss": 0.5})
    lines = [json.loads(line) for line in RunDirectory(tmp_path).metrics.read_text().splitlines()]
    assert lines[0]["loss"] is None
    assert lines[0]["scheme"] == {"ratio": None, "sums": [1.0, None]}
    assert lines[1]["loss"] == 0.5
    recorder.close()


def test_a_full_disk_ends_no_training_and_is_said_once(tmp_path, capsys):
    directory = RunDirectory(tmp_path)
    directory.metrics.symlink_to("/dev/full")
    recorder = Recorder(tmp_path)
    for _ in range(3):
        recorder.metric({"loss": 0.5})
    recorder.decision({"id": 0})
    recorder.close()
    said = f"trimtab: the records in {tmp_path} are incomplete (No space left on device); training goes on\n"
    assert capsys.readouterr().err == said
    assert directory.decisions.read_text() == '{"id": 0}\n'


def test_a_line_that_does_not_fit_leaves_no_part_behind(tmp_path):
    code = (
        "import resource, sys; from pathlib import Path; from trimtab.run_files.line_file import LineFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); file = LineFile(Path(sys.argv[1]))\n"
        "for number in range(4):\n"
        "    try: file.write('x' * (10 if number == 3 else 39) + '\\n')\n"
        "    except OSError as error: print(number, error.strerror)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "lines"], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "2 No space left on device\n"
    assert [len(line) for line in (tmp_path / "lines").read_text().splitlines()] == [39, 39, 10]


def test_a_file_that_has_become_long_is_begun_anew_and_read_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(line_file, "MOST_BYTES", 160)
    directory = RunDirectory(tmp_path)
    recorder, tail, seen = Recorder(tmp_path), Tail(directory.metrics), []
    for step in range(20):
        recorder.metric({"step": step, "step_seconds": 1})
        seen += [line["step"] for line in tail.new_lines()]
    recorder.close()
    assert seen == list(range(20))
    kept = [line.step for line in all_records(directory.metrics, metric_kind)]
    assert kept == list(range(kept[0], 20))
    assert len(kept) >= 3
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 320
