"""What a launcher says in the environment is what a session reads."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab_api.errors import UserError

names = st.text("abcdefgh-./", min_size=1, max_size=20)
counts = st.integers(0, 10_000)
environments = st.builds(
    LaunchEnvironment,
    rank=counts,
    num_ranks=counts,
    local_rank=counts,
    num_local_ranks=counts,
    master_address=names,
    master_port=counts,
    interface=names,
    job=names.map(Path),
    run_directory=names.map(Path),
    monitor=names,
    seed=counts,
    secret=names,
    keepers=st.lists(names).map(tuple),
)


@given(environments, st.dictionaries(st.sampled_from(["PATH", "HOME"]), names))
def test_reading_inverts_writing(launch: LaunchEnvironment, others: dict[str, str]):
    assert LaunchEnvironment.read(others | launch.variables()) == launch


def test_without_a_launcher_of_ours_there_is_nothing_to_read():
    assert LaunchEnvironment.read({"RANK": "0", "WORLD_SIZE": "4", "TRIMTAB_JOB": "job.yaml"}) is None


@given(environments, st.data())
def test_a_missing_variable_is_named(launch: LaunchEnvironment, data: st.DataObject):
    variables = launch.variables()
    needless = ("TRIMTAB_MONITOR", "TRIMTAB_KEEPERS", "NODE_RANK", "WORLD_SIZE")
    missing = data.draw(st.sampled_from([name for name in variables if name not in needless]))
    del variables[missing]
    with pytest.raises(UserError, match=missing):
        LaunchEnvironment.read(variables)


def test_a_variable_that_is_no_number_is_named():
    with pytest.raises(UserError) as caught:
        LaunchEnvironment.read({"TRIMTAB_MONITOR": "localhost:1", "RANK": "first"})
    assert str(caught.value) == "RANK: 'first': must be a whole number"
