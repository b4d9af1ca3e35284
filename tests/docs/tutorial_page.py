"""Reads a tutorial: its files, the lines it changes and the commands that a reader runs, in the page's order."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs/tutorials"
_FENCE = re.compile(
    r"^ *```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its title (empty if none) and its text."""

    language: str
    title: str
    text: str


def page_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; those in a list lose their indentation."""
    found = _FENCE.finditer(page.read_text("utf-8"))
    return [Block(match["language"], match["title"] or "", textwrap.dedent(match["text"])) for match in found]


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of the tutorial `docs/tutorials/NAME.md`."""
    return page_blocks(TUTORIALS / f"{name}.md")


def commands(name: str, title: str = "") -> list[str]:
    """Return the texts of the page's bash blocks that have this title."""
    return [block.text for block in blocks(name) if block.language == "bash" and block.title == title]


def write_file(folder: Path, block: Block) -> None:
    """Write a titled block as a file, or apply a titled diff, whose `-` lines each occur once in the file."""
    file = folder / block.title
    if block.language != "diff":
        file.write_text(block.text)
        return
    lines, text = block.text.splitlines(), file.read_text()
    for old, new in zip(lines[::2], lines[1::2], strict=True):
        assert (old[0], new[0]) == ("-", "+")
        assert text.count(old[1:] + "\n") == 1, old
        text = text.replace(old[1:] + "\n", new[1:] + "\n")
    file.write_text(text)
