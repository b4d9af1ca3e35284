"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
import subprocess
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?P<part><!-- part of a script -->\n)?"
    r" *```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
#: Each shell line of a console block, behind its prompt.
_PROMPT = re.compile(r"^[$#] (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; one in a list loses its indentation."""

    page: str
    line: int
    language: str
    title: str
    """Name of the file, or of the terminal; empty if the block has none."""
    text: str
    is_part: bool
    """True if the page says that it is no whole script."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def shell(self) -> str:
        """The commands of a shell block, without prompts and output; empty in other languages."""
        if self.language in ("bash", "sh", "shell"):
            return self.text
        return "\n".join(_PROMPT.findall(self.text)) if self.language == "console" else ""


@cache
def pages() -> dict[str, str]:
    """Return the text of each Markdown file that git knows, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted(set(listed.stdout.split()))
    return {name: (ROOT / name).read_text("utf-8") for name in names if (ROOT / name).is_file()}


@cache
def page_blocks(name: str) -> list[Block]:
    """Return the blocks of one page, such as ``docs/index.md``."""
    text = pages()[name]
    return [
        Block(
            name,
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            match["title"] or "",
            textwrap.dedent(match["text"]),
            bool(match["part"]),
        )
        for match in _FENCE.finditer(text)
    ]


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of these languages in all pages."""
    return [block for name in pages() for block in page_blocks(name) if block.language in languages]


def commands() -> list[tuple[str, str]]:
    """Return where each command line is written, and the line: in shell blocks and in indented ones."""
    found = []
    for block in blocks("bash", "sh", "shell", "console"):
        joined = block.shell.replace("\\\n", " ")
        found += [(str(block), line.strip()) for line in joined.splitlines() if line.strip()]
    for name, text in pages().items():
        joined = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
        found += [
            (name, line.strip()) for line in re.findall(r"^ {4}((?:trimtab|make|kubectl|helm) .*)$", joined, re.M)
        ]
    return found
