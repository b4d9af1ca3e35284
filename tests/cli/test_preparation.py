"""What `run` and `compare` say before they start anything."""

import pytest
from trimtab.cli.preparation import ignored_variables


@pytest.mark.parametrize(("command", "flag"), [("run", "--plan"), ("compare", "--plans")])
def test_a_variable_for_other_launchers_is_said_to_have_no_effect(command, flag):
    assert ignored_variables(command, {"PATH": "/bin", "TRIMTAB_PLAN": "dense", "TRIMTAB_JOB": ""}) == [
        f"TRIMTAB_PLAN: 'dense': has no effect on `trimtab {command}`, only on scripts that other launchers start; "
        f"use {flag}"
    ]
