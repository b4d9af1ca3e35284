"""Each Python file that the docs for developers name is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS_OF_PAGES = ("adr", "explanation")
PAGES = [ROOT / "CONTRIBUTING.md", *(page for kind in FOLDERS_OF_PAGES for page in ROOT.glob(f"docs/{kind}/*.md"))]
FOLDERS = ("proto", "netmon", "operator", "trainer", "tests", "scripts", "benchmarks", "examples")


def test_each_file_that_is_named_is_there():
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    ends = {file[start:] for file in files for start in [0, *(match.end() for match in re.finditer("/", file))]}
    named = [(page.name, name) for page in PAGES for name in re.findall(r"`([\w./-]+\.py)`", page.read_text("utf-8"))]
    assert len(named) > 50
    assert [each for each in named if each[1] not in ends] == []
