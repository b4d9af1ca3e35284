"""`docs/reference/cli.md`, from the parsers of all commands."""

from __future__ import annotations

import argparse
from typing import Any

import trimtab_netmon.main as monitor
import trimtab_operator.main as operator
from generated import NOTE
from trimtab.cli import main as trimtab
from trimtab.plan.names import GRID_MEANS
from trimtab_api.cli import Parser


class _StopError(Exception):
    """Carries a parser out of a program before it starts."""


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command, by what a user types."""
    names = [(each.name,) for each in trimtab.COMMANDS if each.module]
    names += [("bench", each.name) for each in trimtab.BENCHES]
    parsers = {" ".join(("trimtab", *words)): _captured(trimtab.main, [*words, "--help"]) for words in names}
    parsers["trimtab-operator"] = _captured(operator.main, ["--help"])
    parsers["trimtab-netmon"] = _captured(monitor.main, ["--help"])
    return parsers


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return all flags that a command takes."""
    return {flag for action in parser._actions for flag in action.option_strings}


def _captured(program: Any, words: list[str]) -> argparse.ArgumentParser:
    """Return the parser that prints the help of a command."""
    print_help = Parser.print_help

    def stop(self: Parser, *_: Any) -> None:
        raise _StopError(self)

    Parser.print_help = stop  # type: ignore[method-assign, assignment]
    try:
        program(words)
    except _StopError as found:
        parser: argparse.ArgumentParser = found.args[0]
        return parser
    finally:
        Parser.print_help = print_help  # type: ignore[method-assign]
    raise AssertionError(words)


def command_line() -> str:
    """Return the page of all commands and their options."""
    lines = ["# Command line", "", NOTE, ""]
    lines += ["Each command prints its options with `--help`. A mistake in an option or a file is one line on stderr,"]
    lines += ["and the exit code is 2.", ""]
    for name, parser in command_parsers().items():
        summary = (parser.description or "").strip().split("\n")[0].rstrip(".")
        lines += [f"## {name}", "", f"{summary}.", "", "| argument | meaning |", "|---|---|"]
        lines += [f"| {_argument(action)} | {_help(action)} |" for action in _shown(parser)]
        lines += [""]
    before, grid, after = "\n".join(lines).rstrip().partition(GRID_MEANS)  # told once, for `trimtab compare`
    return before + grid + after.replace(GRID_MEANS, "the plans of `trimtab compare`") + "\n"


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if "--help" not in action.option_strings and action.help != argparse.SUPPRESS
    ]


def _argument(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    if action.nargs == 0:
        return f"`{action.option_strings[-1]}`"
    value = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices else "…")
    return f"`{action.option_strings[-1]} {value}`"


def _help(action: argparse.Action) -> str:
    text = " ".join((action.help or "").replace("|", "\\|").split())
    has_default = action.default not in (None, False, argparse.SUPPRESS) and "%(default)s" not in text
    shown = text % {"default": action.default, "prog": ""} if "%(" in text else text.replace("%%", "%")
    is_plain = has_default and isinstance(action.default, int | float | str) and str(action.default) not in shown
    return shown + (f" (default: `{action.default}`)" if is_plain else "")
