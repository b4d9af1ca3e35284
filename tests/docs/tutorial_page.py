"""What a reader does with a page: takes its files and changed lines, and runs its commands, in the page's order."""

from __future__ import annotations

from pathlib import Path

from doc_pages import Block, page_blocks


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of the tutorial `docs/tutorials/NAME.md`."""
    return page_blocks(f"docs/tutorials/{name}.md")


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
