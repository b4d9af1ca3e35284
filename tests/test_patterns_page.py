"""Every test that docs/reference/patterns.md names exists, so that the page promises nothing that no test shows."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "patterns.md"
ROWS = re.findall(r"\| `([^`]+\.py)`: `(test_[^`]+)` \|$", PAGE.read_text(), flags=re.MULTILINE)


def test_every_row_names_a_test_and_the_readme_counts_them():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| shown by |" not in line]
    assert len(rows) == len(ROWS) >= 40
    assert f"[{len(ROWS)} patterns](docs/reference/patterns.md)" in (TESTS.parent / "README.md").read_text()


@pytest.mark.parametrize("file", sorted({file for file, _ in ROWS}))
def test_the_tests_exist(file):
    named = {name for path, name in ROWS if path == file}
    defined = {each.name for each in ast.parse((TESTS / file).read_text()).body if isinstance(each, ast.FunctionDef)}
    assert named <= defined
