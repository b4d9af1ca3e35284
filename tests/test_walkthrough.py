"""Every file and name that docs/walkthrough.md mentions is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "walkthrough.md").read_text()
MENTIONED = sorted(set(re.findall(r"`([^`]+)`", TEXT)))
FILES = [each for each in MENTIONED if "/" in each]
NAMES = [each for each in MENTIONED if re.fullmatch(r"[A-Za-z_]+(\.[a-z_]+)?", each)]
#: What a script or a user writes.
OTHERS = {"grad", "code", "decisions.jsonl"}


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_there(file):
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("name", [each for each in NAMES if each not in OTHERS])
def test_a_name_is_defined_in_one_of_the_files(name):
    owner, _, method = name.partition(".")
    sources = [(ROOT / file).read_text() for file in FILES if (ROOT / file).is_file()]
    defined = [text for text in sources if re.search(rf"^\s*(class|def) {owner}\b", text, re.MULTILINE)]
    assert defined, f"nothing is called {owner}"
    assert not method or any(re.search(rf"def {method}\b", text) for text in defined)
