"""Apply each small fault of this folder to a copy of the repository, and run the tests that could find it.

    .venv/bin/python tests/faults/run.py [ROOM | ROOM/FAULT ...]     (default: all of them)

A fault is a file ``ROOM/FAULT.patch``: a diff of a few lines, below two comments. ``# what:`` says what the fault does,
``# tests:`` names the files or tests that may find it. A table goes to the terminal and to ``runs/faults.json``.

The exit code is 1 if a fault is not found, and 2 if that cannot be said: a patch no longer applies, or a test fails
without a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).parent
RESULT = ROOT / "runs" / "faults.json"
MEMBERS = ("proto", "netmon", "trainer", "operator")
#: Seconds that the tests of one fault may take.
LIMIT = 240
_HEADER = re.compile(r"^# (what|tests): (.+)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
#: What tests and product import of others, and takes seconds.
_IMPORTED_ONCE = ("grpc", "hypothesis", "kubernetes.client", "numba", "numpy", "prometheus_client", "pydantic", "torch")
_PR_SET_CHILD_SUBREAPER = 36
_PYTEST = (*("-q", "-x", "-m", "not full", "-p", "no:cacheprovider", "--require"), *("-o", "timeout=100"))


@dataclass(frozen=True)
class Fault:
    """One patch, and what stands above its diff."""

    name: str
    """Its room and its file's name without suffix, such as ``netmon/no-pause``."""
    patch: Path
    what: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, patch: Path) -> Fault:
        header = dict(_HEADER.findall(patch.read_text(encoding="utf-8").partition("\ndiff --git")[0]))
        if header.keys() != {"what", "tests"}:
            sys.exit(f"{patch}: write the lines '# what: ...' and '# tests: ...' above the diff")
        return cls(f"{patch.parent.name}/{patch.stem}", patch, header["what"], tuple(header["tests"].split()))

    @property
    def files(self) -> list[str]:
        """The files that the patch changes."""
        return re.findall(r"^\+\+\+ b/(.+)$", self.patch.read_text(encoding="utf-8"), re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What became of one fault."""

    fault: str
    what: str
    outcome: str
    """``found``, ``not found``, or what keeps it from being tried."""
    found_by: str
    """The first test that failed; the first file of tests where their process crashed."""
    seconds: float


class Copy:
    """The files of this clone in a folder of their own; tests that run there import the product from there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = _output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():  # a file that was removed is still listed
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / each) for each in MEMBERS)}
        code = "import trimtab, trimtab_api, trimtab_netmon, trimtab_operator as o; print(o.__file__, trimtab.__file__)"
        _, printed = self._run([sys.executable, "-c", code], 60)
        if printed.count(str(folder)) != 2:
            sys.exit(f"the copy in {folder} is not what is imported: {printed}")

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[str]:
        """Have the copy contain a fault meanwhile. Yields why it cannot, or nothing."""
        before = {name: (self._folder / name).read_bytes() for name in fault.files if (self._folder / name).is_file()}
        status, printed = self._run(["git", "apply", "--recount", str(fault.patch)], 60)
        try:
            self._forget_compiled(fault.files)
            yield f"no longer applies: {printed.strip()}" if status else ""
        finally:
            for name, content in before.items():
                (self._folder / name).write_bytes(content)
            self._forget_compiled(fault.files)

    def test(self, tests: Sequence[str], *options: str, limit: float = LIMIT) -> tuple[int | None, str]:
        """Run tests up to the first that fails; their exit status (None: too slow), and what they printed."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            child = os.fork()
            if child == 0:
                self._test_here([*_PYTEST, *options, *tests], output.fileno())
            status, deadline = None, time.monotonic() + limit
            try:
                while status is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                    status = _ended().get(child)
            finally:
                _end_children()
            output.seek(0)
            return status, output.read()

    def _test_here(self, arguments: list[str], output: int) -> NoReturn:
        """Run pytest in this process, which was forked for it: what takes long to import is there already."""
        status = 3
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            for descriptor in (1, 2):
                os.dup2(output, descriptor)
            os.chdir(self._folder)
            os.environ.update(self._environment)
            sys.path[0] = str(self._folder)
            sys.path[1:1] = [str(self._folder / each) for each in MEMBERS]
            del sys.modules["__main__"].__file__  # else processes that tests start would import this script
            status = int(pytest.main(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _forget_compiled(self, files: Sequence[str]) -> None:
        """Python compares times of files to the second; Numba does not see that a called function changed."""
        for name in files:
            for compiled in (self._folder / name).parent.glob(f"__pycache__/{Path(name).stem}.*.pyc"):
                compiled.unlink()
            if "numba" in (self._folder / name).read_text(encoding="utf-8"):
                for compiled in (self._folder / "trainer").rglob("*.nb[ci]"):
                    compiled.unlink()

    def _run(self, argv: list[str], limit: float) -> tuple[int | None, str]:
        """Run a program, and end what it leaves behind; its status and output."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(argv, cwd=self._folder, env=self._environment, stdout=output, stderr=output)
            status = None
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(limit)
            finally:
                _end_children()
            output.seek(0)
            return status, output.read()


def main() -> int:
    """Try the faults that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description="Hold the tests against small faults in the product.")
    parser.add_argument("names", nargs="*", metavar="ROOM | ROOM/FAULT", help="the faults to try (default: all)")
    faults = _chosen(parser.parse_args().names)
    # What tests leave behind becomes a child of this process, which ends it.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for slow in _IMPORTED_ONCE:
        importlib.import_module(slow)
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-faults-") as folder:
            copy = Copy(Path(folder))
            results = [_try(copy, fault) for fault in faults]
            results = _without_faults(copy, results)
    except KeyboardInterrupt:
        return 130
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n", encoding="utf-8")
    outcomes = [each.outcome for each in results]
    print(f"{outcomes.count('found')} of {len(faults)} found; see {RESULT.relative_to(ROOT)}")
    return 2 if set(outcomes) - {"found", "not found"} else int("not found" in outcomes)


def _chosen(names: Sequence[str]) -> list[Fault]:
    faults = [Fault.read(patch) for patch in sorted(FAULTS.glob("*/*.patch"))]
    chosen = [fault for fault in faults if not names or fault.name in names or fault.patch.parent.name in names]
    known = {fault.name for fault in faults} | {fault.patch.parent.name for fault in faults}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{unknown[0]} is no room and no fault; see {FAULTS.relative_to(ROOT)}")
    return chosen


def _try(copy: Copy, fault: Fault) -> Result:
    begun, found_by = time.monotonic(), ""
    with copy.with_fault(fault) as error:
        outcome = error
        if not error:
            status, printed = copy.test(fault.tests)
            failed = _FAILED.search(printed)
            if status and (failed or status < 0):  # less than 0: the process crashed, as it may before it reports
                outcome, found_by = "found", failed[1] if failed else fault.tests[0]
            else:
                outcome = "not found" if status == 0 else f"no answer: {printed.strip()[-300:]}"
    result = Result(fault.name, fault.what, outcome, found_by, round(time.monotonic() - begun, 1))
    print(f"{outcome:10} {fault.name:45} {result.seconds:6.1f} s  {found_by}", flush=True)
    return result


def _without_faults(copy: Copy, results: Sequence[Result]) -> list[Result]:
    """Run what found faults without any: a test that fails then as well has proven nothing."""
    found_by = sorted({each.found_by for each in results if each.found_by})
    _, printed = copy.test(found_by, "--maxfail=0", limit=len(found_by) * LIMIT) if found_by else (0, "")
    failed = {test for test in _FAILED.findall(printed) if copy.test([test])[0]}  # else the machine was busy
    for test in sorted(failed):
        print(f"fails without a fault as well: {test}", flush=True)
    outcome = "no answer: the test fails without the fault as well"
    return [replace(each, outcome=outcome) if each.found_by in failed else each for each in results]


def _ended() -> dict[int, int]:
    """The exit statuses of children that have ended, by process; those that tests left behind are reaped with them."""
    statuses: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):  # there are no children any more
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return statuses


def _end_children() -> None:
    """End all processes under this one."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=10)


def _output(*argv: str) -> str:
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
