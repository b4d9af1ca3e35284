"""``$(NAME)`` as Kubernetes expands it; the cases are those of its own tests."""

import pytest
from trimtab.launch.processes.trainer_command import expand

VARIABLES = {"VAR_A": "A", "VAR_B": "B", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___$(VAR_A)", "___B___A"),
        ("$(VAR_A)$(VAR_A)-$(VAR_B)", "AA-B"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("$(VAR_UNKNOWN)", "$(VAR_UNKNOWN)"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("f000-$$VAR_A", "f000-$VAR_A"),
        ("foo\\$(VAR_A)bar", "foo\\Abar"),
        ("$VAR_A", "$VAR_A"),
        ("$(VAR_A", "$(VAR_A"),
        ("$($(VAR_A))", "$($(VAR_A))"),
        ("$()$", "$()$"),
        ("$$", "$"),
        ("", ""),
    ],
)
def test_references_become_values(text, expanded):
    assert expand(text, VARIABLES) == expanded
