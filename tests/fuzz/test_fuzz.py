"""No input breaks a parser: it is accepted, or refused by the parser's own error, within bounded time and memory."""

from __future__ import annotations

import platform
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "status"))
from all_targets import TARGETS  # noqa: E402
from mutation import mutated  # noqa: E402
from target import MOST_BYTES, deadline  # noqa: E402

#: Seconds of each in `make test-all`.
SECONDS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_survives_damaged_examples(name: str) -> None:
    target, draw = TARGETS[name], random.Random(name)
    corpus = target.corpus()
    for each in corpus:
        feed(name, each)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(target.inputs):
        feed(name, mutated(draw.choice(corpus), corpus, draw))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES, f"{name}: {grown >> 20} MiB more"


def feed(name: str, data: bytes) -> None:
    try:
        with deadline():
            TARGETS[name].feed(data)
    except BaseException as error:
        pytest.fail(f"{name}: {type(error).__name__}: {error}: of {data[:2000]!r}")


@pytest.mark.full
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.version_info >= (3, 14), reason="Atheris has no wheel for this Python"
)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_that_coverage_leads_to_breaks_a_parser(name: str, tmp_path: Path) -> None:
    argv = [sys.executable, str(HERE / "guided.py"), name, str(SECONDS), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = [path.read_bytes() for path in tmp_path.glob("*-*") if path.is_file()]
    assert done.returncode == 0, f"{found}\n{done.stderr[-4000:]}"
