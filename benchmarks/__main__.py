"""Lists the benchmarks, and runs one: `python benchmarks`, `python benchmarks costs/echoes 32 10`.

A run writes its figures as JSON under benchmarks/results; `python benchmarks --results FOLDER NAME` writes elsewhere.

Each is a script under a folder beside this file: *training*, what plans do to training; *planning*, what planners and
schedules choose; *costs*, what parts of Trimtab cost. The first line of its docstring says what it tells, and the last
one what it needs and how long it takes on two cores. Those that share helpers with the tests import them from tests/.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.append(str(HERE))  # for `results`, where this file is loaded and not run
_NEEDS = re.compile(r"^Needs (?P<needs>.+); takes (?P<takes>.+)\.$")


@dataclass(frozen=True)
class Benchmark:
    """One script, as its docstring describes it."""

    name: str
    what: str
    needs: str
    takes: str


def benchmarks() -> list[Benchmark]:
    """All of them, by name; a helper module says of itself neither what it needs nor how long it takes."""
    found = []
    for file in sorted(HERE.glob("*/*.py")):
        lines = (ast.get_docstring(ast.parse(file.read_text())) or "").splitlines()
        described = _NEEDS.match(lines[-1]) if lines else None
        if described is not None:
            name = file.relative_to(HERE).with_suffix("").as_posix()
            found.append(Benchmark(name, lines[0], described["needs"], described["takes"]))
    return found


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names, by the others; list all where there is none."""
    from results import RESULTS, run_recorded

    known, folder = benchmarks(), RESULTS
    if arguments[:1] == ["--results"]:
        if len(arguments) == 1:
            print("benchmarks: --results needs a folder", file=sys.stderr)
            return 2
        folder, arguments = Path(arguments[1]), arguments[2:]
    if not arguments:
        for each in known:
            print(f"{each.name}\n    {each.what}\n    needs {each.needs}; takes {each.takes}")
        print("\nRun one: python benchmarks NAME [ARGUMENTS]; its flags: python benchmarks NAME --help")
        return 0
    name, *rest = arguments
    if name not in {each.name for each in known}:
        print(f"benchmarks: {name!r}: choose from {', '.join(each.name for each in known)}", file=sys.stderr)
        return 2
    show_helpers(name)
    sys.argv = [name, *rest]
    run_recorded(name, rest, folder, lambda: runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__"))
    return 0


def show_helpers(name: str) -> None:
    """Let a benchmark import the modules beside it, those of the examples and the helpers of the tests."""
    helpers = sorted({file.parent for file in (ROOT / "tests").rglob("*.py")})
    sys.path[:0] = [str(each) for each in ((HERE / name).parent, ROOT / "examples", *helpers)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
