"""Others' schemes, which import modules and name fields as they were called in the last release."""

import subprocess
import sys
from importlib import import_module

import pytest
from trimtab.plan.schedules import Send
from trimtab.process.moved_modules import MOVED
from trimtab_api import catalogue

#: What the examples of schemes imported.
LAST_RELEASE = """
from trimtab import kernels
from trimtab.collectives.base import Collective, Exchange, Exchanged, Prepared
from trimtab.collectives.primitives import ring_all_reduce
from trimtab.collectives.stopwatch import Stopwatch
from trimtab.collectives.transport import Transport
from trimtab.fusion.base import BufferCosts
from trimtab.profile import Profile
from trimtab.schedule import Iteration, Schedule, Send
from trimtab.sparsify.base import Sent
from trimtab.sparsify.formed_selector import FormedSelector
"""
SAME = """
from trimtab.plan.profile import Profile as P
from trimtab.sparsifiers.base import FormedSelector as F, Sent as S
from trimtab.transport.base import Transport as T
from trimtab.transport.timer import LapTimer
assert (P, F, S, T, LapTimer) == (Profile, FormedSelector, Sent, Transport, Stopwatch)
import trimtab.sparsifiers.base
assert trimtab.sparsifiers.base.__spec__.name == "trimtab.sparsifiers.base"
"""


def run(script, *flags):
    command = [sys.executable, *flags, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_modules_under_their_old_names_are_the_moved_ones_and_each_import_says_so():
    done = run(LAST_RELEASE + SAME, "-W", "always::FutureWarning")
    assert done.returncode == 0, done.stderr
    assert "trimtab.sparsify.base is now trimtab.sparsifiers.base" in done.stderr
    assert "Stopwatch is now LapTimer" in done.stderr


def test_what_has_moved_is_where_the_table_says():
    assert all(import_module(new) for new in MOVED.values())


def test_a_name_that_never_was_is_not_found():
    done = run("import trimtab.sparsify.nothing")
    assert "No module named 'trimtab.sparsifiers.nothing'" in done.stderr


def test_fields_of_a_scheme_keep_their_old_names_for_a_release():
    with pytest.warns(FutureWarning, match=r"Collective\(\): cuts_union= is now reselects="):
        row = catalogue.Collective("theirs", "a scheme", cuts_union=True)
    assert row.reselects
    with pytest.warns(FutureWarning, match=r"Send\(\): generation= is now iteration="):
        assert Send(0, generation=3).iteration == 3
