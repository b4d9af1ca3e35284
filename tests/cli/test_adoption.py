"""Adopting Trimtab changes four lines of a plain training script."""

import difflib
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def changes(before: Path, after: Path) -> tuple[list[str], list[str]]:
    lines = list(difflib.ndiff(before.read_text().splitlines(), after.read_text().splitlines()))
    removed = [line[2:].strip() for line in lines if line.startswith("- ")]
    added = [line[2:].strip() for line in lines if line.startswith("+ ")]
    return removed, added


def test_the_plain_script_is_adopted_with_four_lines():
    removed, added = changes(EXAMPLES / "char_lm_plain.py", EXAMPLES / "char_lm.py")
    assert added == [
        "import trimtab",
        "session = trimtab.attach(model, optimizer)",
        "for inputs, targets in session.batches(loader):",
        "session.step(loss)",
    ]
    assert removed == ["for inputs, targets in loader:", "optimizer.step()"]
