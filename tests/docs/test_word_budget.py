"""The documentation stays short, and complete: a page that nobody reads says nothing."""

from __future__ import annotations

import re

from doc_pages import ROOT, pages

MOST_README_LINES = 150
#: Words of all Markdown, without code blocks, comments, the targets of links, and signs such as those of tables.
MOST_WORDS = 32_000
_NO_WORDS = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|(?<=\])\([^)]*\)", re.MULTILINE | re.DOTALL)


def num_words(text: str) -> int:
    return sum(any(character.isalpha() for character in word) for word in _NO_WORDS.sub(" ", text).split())


def test_the_readme_fits_five_screens() -> None:
    assert pages()["README.md"].count("\n") <= MOST_README_LINES


def test_all_pages_stay_within_their_budget() -> None:
    words = {name: num_words(text) for name, text in pages().items()}
    largest = sorted(words.items(), key=lambda each: -each[1])[:8]
    assert sum(words.values()) <= MOST_WORDS, f"{sum(words.values())} words; the longest: {largest}"


def test_each_page_has_one_title() -> None:
    wrong = []
    for name, text in pages().items():
        if name.startswith("docs/"):
            in_code, titles = False, 0
            for line in text.splitlines():
                in_code ^= line.lstrip().startswith("```")
                titles += not in_code and line.startswith("# ")
            wrong += [name] if titles != 1 else []
    assert wrong == []


def test_the_site_s_folders_have_a_place_in_its_navigation() -> None:
    hooks = (ROOT / "scripts/site/hooks.py").read_text("utf-8")
    folders = {path.parent.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - {"."}
    assert {folder for folder in folders if f'"{folder}": ' not in hooks} == set()
