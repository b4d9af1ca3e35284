"""Each paper's folder has a README, and each file and name of ours that a README gives exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.mentions import defines

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "trainer" / "trimtab" / "papers"
FOLDERS = sorted(path.parent for path in PAPERS.glob("*/__init__.py"))
NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


def missing(folder: Path, text: str) -> Iterator[str]:
    """The code spans that are a file or a name and do not exist: a name belongs to the file that is named before it."""
    file: Path | None = None
    for span in re.findall(r"`([^`\n]+)`", text):
        if span.endswith((".py", "/")):
            file = ROOT / span if "/" in span else folder / span
            if not file.exists():
                yield span
            if not file.is_file():
                file = None
        elif NAME.fullmatch(span) and not (file and defines(ast.parse(file.read_text("utf-8")).body, span)):
            yield span


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_papers_readme_names_only_what_is_there(folder: Path):
    text = (folder / "README.md").read_text("utf-8")
    assert list(missing(folder, text)) == []
    assert all(heading in text for heading in ("**Idea.**", "**Here.**", "**In a job.**", "**Differences**"))
    unnamed = {path.name for path in folder.glob("*.py")} - {"__init__.py", *re.findall(r"`(\w+\.py)`", text)}
    assert unnamed == set(), "the README says nothing of these files"


@pytest.mark.parametrize("page", sorted(PAPERS.rglob("*.md")), ids=lambda page: page.parent.name)
def test_each_link_of_a_papers_readme_leads_to_a_file(page: Path):
    links = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_the_index_of_papers_lists_each_folder():
    links = re.findall(r"\]\((\w+)/README.md\)", (PAPERS / "README.md").read_text("utf-8"))
    assert sorted(links) == [folder.name for folder in FOLDERS]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`spardl.py`: `SparDL.run`", []),
        ("`spardl.py`: `SparDL.runs`", ["SparDL.runs"]),
        ("`spardel.py`", ["spardel.py"]),
        ("`residual=local`, then `SparDL`", ["SparDL"]),
        ("`trainer/trimtab/wire/pairs.py`: `added`", []),
    ],
)
def test_a_mention_of_nothing_is_found(text: str, found: list[str]):
    assert list(missing(PAPERS / "spardl", text)) == found
