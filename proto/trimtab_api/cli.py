"""The common part of all command lines: each complaint of argparse becomes one line with flag, value and remedy."""

from __future__ import annotations

import argparse
import difflib
import io
import math
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from trimtab_api.errors import UserError

T = TypeVar("T")

#: A value that argparse takes for a flag: ``-5ms``.
_NEGATIVE = re.compile(r"-\.?\d")
_FLAG = re.compile(r"--?[A-Za-z]")


def reset_process_state() -> None:
    """Undo what would make a command fail by the way it was started; call it first of all.

    Daemons, cron and some schedulers start programs with SIGCHLD ignored, and then no exit code of a child is known. If
    the locale is ASCII or Latin-1, a character that it lacks is written as an escape instead of ending the run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError`, and takes a flag only by its whole name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise `UserError` with the flag, its value, and what to do."""
        raise argparse_error(message, self.prog)

    @property
    def flags(self) -> list[str]:
        """The parser's flags, by their names."""
        return list(dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.format_usage())))

    @property
    def hands_on(self) -> bool:
        """True if what follows its first word is for another parser, or another program."""
        return any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report an unknown flag before the lack of one that it may stand for."""
        for word in args or ():
            if word == "--" or (self.hands_on and not word.startswith("-")):
                break
            if _FLAG.match(word) and word.partition("=")[0] not in self._option_string_actions:
                raise unused_arguments_error([word], self)
        return super().parse_known_args(args, namespace)


def argparse_error(message: str, prog: str) -> UserError:
    """Convert a complaint of argparse to a user's error.

    Args:
        message: The complaint.
        prog: The command, such as ``trimtab run``.
    """
    help_there = f"see `{prog} --help`"
    if found := re.fullmatch(r"the following arguments are required: (.*)", message):
        return UserError(f"{'are' if ', ' in found[1] else 'is'} missing; {help_there}", field=found[1])
    if found := re.fullmatch(r"one of the arguments (.*) is required", message):
        return UserError(f"one of them is missing; {help_there}", field=found[1].replace(" ", ", "))
    named = re.fullmatch(r"argument ([^:]*): (.*)", message)
    field, said = (named[1], named[2]) if named else ("", message)
    if re.match(r"expected .* argument", said):
        return UserError(f"needs a value after it; {help_there}", field=field)
    if found := re.match(r"invalid choice: '(.*)' \(choose from (.*)\)", said):
        known = [choice.strip("'") for choice in found[2].split(", ")]
        return UserError(f"is not known; {_meant(found[1], known)}", field=field, value=found[1])
    if found := re.fullmatch(r"ignored explicit argument '(.*)'", said):
        return UserError(f"takes no value; leave out ={found[1]}", field=field, value=found[1])
    if found := re.fullmatch(r"not allowed with argument (.*)", said):
        return UserError(f"cannot stand beside {found[1]}; leave out one of them", field=field)
    return UserError(f"{said}; {help_there}", field=field)


def unused_arguments_error(rest: Sequence[str], parser: Parser) -> UserError:
    """Return the error for arguments that ``parser`` has no use for."""
    flag = next((argument for argument in rest if argument.startswith("-")), None)
    if flag is None:
        return UserError(f"is one argument too many; see `{parser.prog} --help`", value=rest[0])
    name, _, _ = flag.partition("=")
    if parser.hands_on:
        remedy = f"a command's own flags come after its name; see `{parser.prog} --help`"
    elif parser.flags:
        remedy = _meant(name, parser.flags)
    else:
        remedy = "it has none, so leave it out"
    return UserError(f"is no flag of `{parser.prog}`; {remedy}", field=name)


def _meant(word: str, known: Sequence[str]) -> str:
    bare = {option.lstrip("-"): option for option in known}  # their dashes make no two flags alike
    near = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
    return f"did you mean {bare[near[0]]}?" if near else f"choose from {', '.join(known)}"


def join_negative_values(arguments: Sequence[str]) -> list[str]:
    """Join ``--latency -5ms`` to ``--latency=-5ms``, so that the flag itself can name what is wrong with it."""
    done: list[str] = []
    for place, argument in enumerate(arguments):
        if argument == "--":  # what follows is another program's
            return [*done, *arguments[place:]]
        if done and _NEGATIVE.match(argument) and re.fullmatch(r"--[a-z-]+", done[-1]):
            done[-1] += f"={argument}"
        else:
            done.append(argument)
    return done


# What a value may be: each function makes the `type` of one argument, and raises `UserError` itself. -----------------


def invalid_value(remedy: str, field: str, text: str) -> UserError:
    """Return the error for a value that cannot be read; an empty one is called empty."""
    return UserError(remedy if text else f"is empty; {remedy}", field=field, value=text)


def path(field: str) -> Callable[[str], Path]:
    """Return a parser of file and directory names."""

    def parse(text: str) -> Path:
        if not text:
            raise UserError("is empty; write a path", field=field)
        if "\0" in text:
            raise UserError("holds a NUL character; write a path", field=field, value=text)
        return Path(text)

    return parse


def whole_number(field: str, least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds."""

    def parse(text: str) -> int:
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise invalid_value(f"write a whole number from {least} to {most}", field, text)

    return parse


def number(field: str, such_as: str) -> Callable[[str], float]:
    """Return a parser of finite numbers."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise invalid_value(f"write a number such as {such_as}", field, text)
        return value

    return parse


def quantity(
    field: str, parse_text: Callable[[str], T], least: T, most: T, show: Callable[[T], str]
) -> Callable[[str], T]:
    """Return a parser of what ``parse_text`` reads, within bounds that ``show`` writes."""

    def parse(text: str) -> T:
        try:
            value = parse_text(text)
        except UserError as error:
            raise invalid_value(error.remedy, field, text) from None
        if not least <= value <= most:  # type: ignore[operator]
            raise UserError(f"write {show(least)} to {show(most)}", field=field, value=text)
        return value

    return parse
