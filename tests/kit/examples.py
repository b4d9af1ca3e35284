"""How many examples a property test tries."""

import hypothesis

#: Of a test that names no number, in the profile that `make test` runs.
_USUAL = 100


def examples(number: int) -> int:
    """``number``, or ten times it where the profile is ``wide``, as for tests that name no number."""
    return number * hypothesis.settings.default.max_examples // _USUAL
