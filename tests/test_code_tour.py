"""Every file and every name that docs/explanation/code-tour.md mentions exists, so that the page stays true."""

import ast
import re
from pathlib import Path

import pytest
from kit.mentions import defines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "code-tour.md"


def mentions(text: str) -> list[tuple[str, str]]:
    """Each path with an empty name, and each name with the path that was mentioned last before it."""
    found, path = [], ""
    for token in re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
        if "/" in token:
            path = token
            found.append((path, ""))
        else:
            found.append((path, token))
    return found


def is_there(path: str, name: str) -> bool:
    """Whether the file exists and, where a name is given, defines it."""
    file = ROOT / path
    if not path or not file.is_file():
        return False
    if file.suffix == ".py":
        return not name or defines(ast.parse(file.read_text()).body, name)
    return not name or re.search(rf"\b{re.escape(name)}\b", file.read_text()) is not None


@pytest.mark.parametrize(("path", "name"), sorted(set(mentions(PAGE.read_text()))))
def test_what_the_code_tour_mentions_exists(path, name):
    assert is_there(path, name), f"{PAGE.name} mentions {name or path}, which is not in {path or 'any file'}"


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        ("`trainer/trimtab/session/session.py`: `Session.step`", True),
        ("`trainer/trimtab/session/session.py`: `Session.leap`", False),
        ("`trainer/trimtab/session/session.py`: `step`", False),
        ("`trainer/trimtab/sessions.py`", False),
        ("`Session`", False),
        ("`proto/trimtab_api/netmon/v1/netmon.proto`: `WatchNetworkState`", True),
        ("`proto/trimtab_api/netmon/v1/netmon.proto`: `WatchNetwork`", False),
    ],
)
def test_a_mention_of_nothing_is_seen(text, is_true):
    assert all(is_there(*each) for each in mentions(text)) == is_true
