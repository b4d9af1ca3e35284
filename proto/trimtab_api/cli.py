"""The common part of all command lines: each mistake becomes one line with flag, value and remedy."""

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

#: A value that looks like a flag: ``-5ms``.
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
    """A parser that raises `UserError`, and takes a flag only by its whole name.

    argparse describes a mistake only by an English text. This class makes each error from the arguments themselves
    (docs/adr/0006-own-components.md). The ``type`` of an argument must raise `UserError` for a wrong value.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, exit_on_error=False, **options)
        self._negative_number_matcher = _NEGATIVE  # so that `-5ms` is a value

    def error(self, message: str) -> NoReturn:
        """Raise argparse's complaint that arguments are missing, as it does by itself in Python 3.13."""
        raise argparse.ArgumentError(None, message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; none is left over.

        Raises:
            UserError: An argument is unknown, missing or wrong. An unknown flag comes first, because it may be what the
                user wrote for a missing one.
        """
        words = sys.argv[1:] if args is None else list(args)
        self._check_flags(words)
        parsed = argparse.Namespace() if namespace is None else namespace
        try:
            _, rest = super().parse_known_args(words, parsed)
        except argparse.ArgumentError as error:
            if error.argument_name is None:
                raise self._missing_error(parsed) from None
            action = next(action for action in self._actions if _name(action) == error.argument_name)
            raise self._misuse_error(action, words) from None
        if rest:
            raise UserError(f"is one argument too many; {self._see_help}", value=rest[0])
        return parsed, rest

    @property
    def _see_help(self) -> str:
        return f"see `{self.prog} --help`"

    def _check_flags(self, words: Sequence[str]) -> None:
        """Raise `UserError` for a flag that this parser does not have."""
        known = [flag for action in self._actions for flag in action.option_strings]
        hands_on = any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions)
        for word in words:
            if word == "--" or (hands_on and not word.startswith("-")):
                return  # the rest is for another parser, or for another program
            flag = word.partition("=")[0]
            if _FLAG.match(flag) and flag not in known:
                if hands_on:
                    remedy = f"a command's own flags come after its name; {self._see_help}"
                else:
                    remedy = _closest(flag, [name for name in known if name.startswith("--") and name != "--help"])
                raise UserError(f"is no flag of `{self.prog}`; {remedy}", field=flag)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise `UserError` for a value that is not among an argument's choices."""
        if action.choices is not None and value not in action.choices:
            remedy = f"is not known; {_closest(value, list(action.choices))}"
            raise UserError(remedy, field=_name(action), value=value)

    def _missing_error(self, parsed: argparse.Namespace) -> UserError:
        """Return the error for the required arguments that have no value."""
        required = [action for action in self._actions if action.required]
        missing = [_name(action) for action in required if getattr(parsed, action.dest, None) is None]
        if missing:
            return UserError(f"{'are' if missing[1:] else 'is'} missing; {self._see_help}", field=", ".join(missing))
        group = next(group for group in self._mutually_exclusive_groups if group.required)
        names = ", ".join(map(_name, group._group_actions))
        return UserError(f"one of them is missing; {self._see_help}", field=names)

    def _misuse_error(self, action: argparse.Action, words: Sequence[str]) -> UserError:
        """Return the error for a flag that has a value too many, or a conflicting flag beside it, or no value."""
        given = [word.partition("=") for word in words]
        if action.nargs == 0:
            value = next(value for flag, equals, value in given if equals and flag in action.option_strings)
            return UserError(f"takes no value; leave out ={value}", field=_name(action), value=value)
        group = next((group for group in self._mutually_exclusive_groups if action in group._group_actions), None)
        for conflict in group._group_actions if group else ():
            if conflict is not action and any(flag in conflict.option_strings for flag, _, _ in given):
                return UserError(f"cannot stand beside {_name(conflict)}; leave out one of them", field=_name(action))
        return UserError(f"needs a value after it; {self._see_help}", field=_name(action))


def _name(action: argparse.Action) -> str:
    """Return the name that argparse gives an argument in `argparse.ArgumentError`."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _closest(word: str, known: Sequence[str]) -> str:
    bare = {option.lstrip("-"): option for option in known}  # their dashes make no two flags alike
    near = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
    return f"did you mean {bare[near[0]]}?" if near else f"choose from {', '.join(known)}"


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
