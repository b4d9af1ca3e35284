"""Plans by name, and the job that trains under one."""

import pytest
from trimtab.launch.plans import GRID, parse_plan, parse_plans, plan_of, with_plan
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_training_job


@pytest.fixture
def job(tmp_path) -> TrainingJob:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
        "spec: {workers: 2, template: {spec: {containers: [{name: trainer, command: [python]}]}}}\n"
    )
    return load_training_job(path)


def test_the_grid_is_five_ratios_by_three_collectives():
    assert len(set(GRID)) == 15
    assert all(parse_plan(name, "--plans") == name for name in GRID)


def test_a_list_of_plans_names_each_once():
    names = parse_plans("adaptive, dense,static:0.01/all-gather,0.1/all-gather,grid", "--plans")
    assert names == ["adaptive", "dense", "0.01/all-gather", "0.1/all-gather", *GRID[1:]]


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("dense,adaptive,dense", "dense"),
        ("grid,grid", "grid"),
        ("0.010/all-gather,0.01/all-gather", "0.01/"),
    ],
)
def test_a_plan_that_is_named_twice_is_a_slip(text: str, twice: str):
    with pytest.raises(UserError, match=f"--plans: '{twice}.*': is named twice; leave out one"):
        parse_plans(text, "--plans")


@pytest.mark.parametrize("name", ["adaptive", "dense", "dense-tree", "0.01/all-gather"])
def test_a_job_trains_under_the_plan_it_is_given(job: TrainingJob, name: str):
    assert plan_of(with_plan(job, name)) == name


def test_a_plan_that_is_none_is_named_with_its_field():
    with pytest.raises(UserError, match="--plans: 'grids'"):
        parse_plans("adaptive,grids", "--plans")
