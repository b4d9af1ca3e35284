"""`trimtab run` as daemons, cron and minimal images start it, and beside users who delete its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

JOB = """\
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata: {name: toy}
spec:
  workers: 1
  communication: {policy: Static, plan: dense}
  template: {spec: {containers: [{name: trainer, command: [python, script.py]}]}}
"""


def run(folder: Path, script: str, **options: object) -> tuple[int, str, str]:
    (folder / "job.yaml").write_text(JOB)
    (folder / "script.py").write_text(script, encoding="utf-8")
    argv = [sys.executable, "-m", "trimtab", "run", "job.yaml", "--loopback", "--out", "out", "--tail", "0"]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, timeout=120, check=False, **options)  # type: ignore[call-overload]
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def test_sigchld_ignored_and_an_ascii_locale_change_nothing(tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in ("LANG", "PYTHONIOENCODING")}
    code, output, errors = run(
        tmp_path,
        "import sys\nsys.stdout.buffer.write('Verlust µ 日本 🚀\\n'.encode() + b'\\xff\\n')\nsys.exit(3)\n",
        env={**plain, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert code == 1
    assert output.startswith("Verlust \\xb5 \\u65e5\\u672c \\U0001f680\n")
    assert errors.startswith("trimtab: rank 0 ended with exit code 3; its log is out/logs/rank-0.log, and ends with\n")


def test_a_deleted_run_directory_makes_no_failure_of_a_good_end(tmp_path: Path) -> None:
    soon = {**os.environ, "TRIMTAB_PRELOAD": "0"}  # before a progress line is due
    code, output, errors = run(tmp_path, "import os, shutil; shutil.rmtree(os.environ['TRIMTAB_RUN_DIR'])", env=soon)
    assert (code, output, errors) == (
        0,
        "dense: succeeded; the records in out are incomplete\n",
        "trimtab: the records in out are incomplete (No such file or directory); training goes on\n",
    )
