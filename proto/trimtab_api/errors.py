"""The one kind of error that is the user's to mend: it names the file, the field, the value and the remedy."""

from __future__ import annotations


class UserError(Exception):
    """Something a user wrote that cannot work.

    The command line prints it as one line and exits with code 2, without a traceback.
    """

    def __init__(self, remedy: str, *, field: str = "", value: str = "", file: str = "") -> None:
        super().__init__(remedy)
        self.remedy = remedy
        self.field = field
        self.value = value
        self.file = file

    def in_file(self, file: str) -> UserError:
        """The same error, said of a file."""
        return UserError(self.remedy, field=self.field, value=self.value, file=file)

    def __str__(self) -> str:
        """``file: field: 'value': remedy``, leaving out what is not known."""
        value = f"{self.value!r}" if self.value else ""
        return ": ".join(part for part in (self.file, self.field, value, self.remedy) if part)
