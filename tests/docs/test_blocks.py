"""Every block of a page is valid in its language, and every command has the options and targets that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from doc_pages import ROOT, Block, blocks, commands
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.load import parse_training_job

sys.path.insert(0, str(ROOT / "scripts"))
from command_page import command_parsers, flags_of

#: Ends one command of a line.
_ENDS = {"|", "||", "&&", ";", "&", ">", "2>", "<", ">>", "2>&1"}


def words_of(line: str, program: str) -> list[list[str]]:
    """Return the arguments of each call of a program in a shell line."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    calls: list[list[str]] = []
    call: list[str] | None = None
    is_start = True
    for word in words:
        if word in _ENDS:
            call, is_start = None, True
        elif call is not None:
            call.append(word)
        elif is_start and (word == program or word.endswith(f"/{program}")):
            call = []
            calls.append(call)
        else:
            is_start = is_start and ("=" in word or word in ("sudo", "time", "exec", "watch"))
    return calls


def test_python_blocks_compile() -> None:
    failed = []
    for block in blocks("python", "py"):
        body = (
            "def script():\n for each in ():\n" + textwrap.indent(block.text, "  ") + "\n  pass"
        )  # `continue`, `return`
        try:
            compile(body, str(block), "exec")
        except SyntaxError as error:
            failed.append(f"{block}: {error}")
    assert failed == []


def test_shell_blocks_have_the_syntax_of_bash() -> None:
    failed = []
    for block in blocks("bash", "sh", "shell", "console"):
        checked = subprocess.run(["bash", "-n"], input=block.shell, capture_output=True, text=True)
        if checked.returncode:
            failed.append(f"{block}: {checked.stderr.strip()}")
    assert failed == []


def test_training_jobs_are_valid() -> None:
    failed = []
    for block in blocks("yaml", "yml"):
        failed += wrong_jobs(block)
    assert failed == []


def wrong_jobs(block: Block) -> list[str]:
    try:
        documents = list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        return [f"{block}: {error}"]
    wrong = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "TrainingJob":
            try:
                parse_training_job(yaml.safe_dump(document))
            except UserError as error:
                wrong.append(f"{block}: {error}")
    return wrong


def test_trimtab_commands_have_their_options() -> None:
    parsers = command_parsers()
    checked, failed = 0, []
    for place, line in commands():
        for program in ("trimtab", "trimtab-operator", "trimtab-netmon"):
            for words in words_of(line, program):
                plain = [word for word in words if not word.startswith("-")]
                named = plain[: 2 if plain[:1] == ["bench"] else 1] if program == "trimtab" else []
                name = " ".join([program, *named])
                if program == "trimtab" and (not plain or words[0] in ("--version", "--help")):
                    continue
                if name not in parsers:
                    failed.append(f"{place}: no command {name}")
                    continue
                known = flags_of(parsers[name])
                flags = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
                checked += 1
                failed += [f"{place}: {name} has no {flag}" for flag in sorted(flags - known)]
    assert checked > 5
    assert failed == []


def test_make_commands_have_their_targets() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    wrong = [
        f"{place}: make {word}"
        for place, line in commands()
        for words in words_of(line, "make")
        for word in words
        if re.match(r"[a-z]", word) and word not in targets
    ]
    assert wrong == []


def test_files_that_commands_name_exist() -> None:
    """Examples, charts and scripts of the repository."""
    missing = []
    for place, line in commands():
        for path in re.findall(r"(?<![\w./-])((?:examples|charts|scripts|benchmarks)/[\w./-]+\w)", line):
            if not (ROOT / path).exists() and not (ROOT / Path(place.split(":")[0]).parent / path).exists():
                missing.append(f"{place}: {path}")
    assert missing == []


@pytest.mark.controlplane
def test_kubectl_commands_have_their_options() -> None:
    sys.path.append(str(ROOT / "tests/cluster"))
    import binaries

    kubectl = binaries.obtain(["kubectl"], on_path=True)["kubectl"]
    known: dict[str, set[str]] = {}
    failed = []
    for place, line in commands():
        for words in words_of(line, "kubectl"):
            command = next((word for word in words if re.fullmatch("[a-z]+", word)), "")
            if command not in known:
                told = subprocess.run([kubectl, command, "--help"], capture_output=True, text=True)
                common = subprocess.run([kubectl, "options"], capture_output=True, text=True)
                known[command] = set(re.findall(r"(--?[A-Za-z][\w-]*)", told.stdout + common.stdout))
                if told.returncode:
                    failed.append(f"{place}: kubectl {command}")
            own = words[: words.index("--")] if "--" in words else words
            flags = {word.partition("=")[0] for word in own if re.match(r"--?[A-Za-z]", word)}
            failed += [f"{place}: kubectl {command} has no {flag}" for flag in sorted(flags - known[command])]
    assert failed == []
