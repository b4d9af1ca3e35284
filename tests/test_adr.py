"""Each decision record is short, has its parts, and stands in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("0*.md"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_decision_record_is_short_and_has_its_parts(record: Path):
    text = record.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    assert text.startswith(f"# {int(record.name[:4])}. ")
    assert all(part in text for part in ("**Status:**", "**Context.**", "**Decision.**", "**Consequences.**"))


def test_the_index_lists_each_decision_record_once_with_its_title():
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((\S+)\)$", (FOLDER / "index.md").read_text("utf-8"), re.MULTILINE)
    titles = [record.read_text("utf-8").splitlines()[0] for record in RECORDS]
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == [
        (title, record.name) for title, record in zip(titles, RECORDS, strict=True)
    ]
