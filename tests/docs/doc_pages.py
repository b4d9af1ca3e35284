"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: Each shell line of a console block, behind its prompt.
_PROMPT = re.compile(r"^[$#] (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: its page and line, its language and its text."""

    page: str
    line: int
    language: str
    text: str

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
def blocks(*languages: str) -> list[Block]:
    """Return the blocks of these languages in all pages."""
    found = []
    for name, text in pages().items():
        for match in _FENCE.finditer(text):
            if match["language"] in languages:
                body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
                found.append(Block(name, text.count("\n", 0, match.start()) + 2, match["language"], body))
    return found


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
