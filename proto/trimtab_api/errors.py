"""The error for a user's mistake: it names the file, the field, the value and the remedy."""

from __future__ import annotations

#: Characters of a value that a message repeats: most paths are shorter, whose end tells which file it is.
_LONGEST_VALUE = 160


class UserError(Exception):
    """A user's mistake, which nothing but the user can mend.

    The command line prints it as one line and exits with code 2, without a traceback.
    """

    def __init__(self, remedy: str, *, field: str = "", value: str = "", file: str = "") -> None:
        super().__init__(remedy)
        self.remedy = remedy
        self.field = field
        self.value = value
        self.file = file

    def in_file(self, file: str) -> UserError:
        """Return the same error with the file that it is about."""
        return UserError(self.remedy, field=self.field, value=self.value, file=file)

    def __str__(self) -> str:
        """Return ``file: field: 'value': remedy``, leaving out what is not known."""
        value = self.value if len(self.value) <= _LONGEST_VALUE else f"{self.value[:_LONGEST_VALUE]}..."
        value = f"{value!r}" if value else ""
        return on_one_line(": ".join(part for part in (self.file, self.field, value, self.remedy) if part))


def on_one_line(text: str) -> str:
    """Escape what would break the line or the terminal: names come from files, reasons from peers; any may hold it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
