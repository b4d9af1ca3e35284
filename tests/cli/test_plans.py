"""Plans by name, and the job that trains under one."""

import pytest
from trimtab.cli.main import main
from trimtab.control.settings import controller_settings
from trimtab.control.types import OptimizerFamily
from trimtab.plan.names import GRID, check_runs, parse_plan, parse_plans, plan_of, with_plan
from trimtab.plan.plan import Plan
from trimtab_api.catalogue import wires
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_training_job
from trimtab_api.trainingjob.communication import Fusion


@pytest.fixture
def job(tmp_path) -> TrainingJob:
    path = tmp_path / "job.yaml"
    path.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: toy}\n"
        "spec: {workers: 2, template: {spec: {containers: [{name: trainer, command: [python]}]}}}\n"
    )
    return load_training_job(path)


def test_the_grid_is_five_ratios_by_three_collectives_and_updates_of_three_lengths():
    assert len(set(GRID)) == 5 * 3 + 3 * 3
    assert all(parse_plan(name, "--plans") == name for name in GRID)
    assert {Plan.parse(name).local_steps for name in GRID} == {0, 1, 4, 16}


def test_the_grid_is_spelled_out_where_it_is_offered(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")  # no line is broken
    for command in (["compare"], ["bench", "step"]):
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--help"])
        assert (
            "grid for 24 static plans (each of all-gather, artopk-star-ring, artopk-star-tree "
            "at 0.1, 0.033, 0.011, 0.004, 0.001, "
            "and updates of 1, 4, 16 local steps by dense-ring, 0.1/all-gather, 0.01/all-gather)"
        ) in capsys.readouterr().out


def test_a_list_of_plans_names_each_once():
    names = parse_plans("adaptive, dense,static:0.01/all-gather,0.1/all-gather,grid", "--plans")
    assert names == ["adaptive", "dense", "0.01/all-gather", "0.1/all-gather", *GRID[1:]]


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("dense,adaptive,dense", "dense"),
        ("grid,grid", "grid"),
        ("0.010/all-gather,0.01/all-gather", "0.01/"),
        ("static:dense,dense", "dense"),
    ],
)
def test_a_plan_that_is_named_twice_is_a_slip(text: str, twice: str):
    with pytest.raises(UserError, match=f"--plans: '{twice}.*': is named twice; leave out one"):
        parse_plans(text, "--plans")


@pytest.mark.parametrize("name", ["adaptive", "dense", "dense-tree", "0.01/all-gather"])
def test_a_job_trains_under_the_plan_it_is_given(job: TrainingJob, name: str):
    assert plan_of(with_plan(job, name)) == name


def test_a_plan_under_another_of_its_names_is_a_slip_too():
    with pytest.raises(UserError, match="--plans: 'dense-ring': is dense, which is named already; leave out one"):
        parse_plans("dense,dense-ring", "--plans")


def test_dense_has_one_name():
    assert [parse_plan(text, "--plan") for text in ("dense", "static:dense", "dense-ring", "1/dense-ring")] == 4 * [
        "dense"
    ]


def test_a_plan_that_names_a_default_means_it_whatever_the_job_says(job: TrainingJob):
    (name,) = parse_plans("0.01/all-gather/fusion=fixed:bytes=25MB/sparsifier=tracked", "--plans")
    assert name == "0.01/all-gather/sparsifier=tracked/fusion=fixed"
    said = with_plan(job, name).spec.communication.model_copy(
        update={"sparsifier": "topk", "fusion": Fusion(bufferSize="single")}
    )
    otherwise = job.model_copy(update={"spec": job.spec.model_copy(update={"communication": said})})
    assert controller_settings(otherwise, OptimizerFamily("SGD", "sgd")).static_plan == Plan(0.01, "all-gather")


def test_a_plan_that_selects_by_itself_is_refused_beside_a_sparsifier(job: TrainingJob):
    why = "arc-topk selects by itself, and reads no sparsifier; leave the one or the other out"
    with pytest.raises(UserError, match=f"^--plans: '0.01/arc-topk/sparsifier=topk': sparsifier: 'topk': {why}$"):
        parse_plans("dense,0.01/arc-topk/sparsifier=topk", "--plans")
    check_runs(job, "0.01/arc-topk", "--plans")
    said = job.spec.communication.model_copy(update={"sparsifier": "topk"})
    otherwise = job.model_copy(update={"spec": job.spec.model_copy(update={"communication": said})})
    with pytest.raises(UserError, match=rf"^--plans: '0.01/arc-topk': {why} \(the job says topk\)$"):
        check_runs(otherwise, "0.01/arc-topk", "--plans")


def test_ddp_with_a_hook_is_the_same_job_whose_trainers_hear_of_it(job: TrainingJob):
    assert parse_plans("dense,ddp-fp16", "--plans") == ["dense", "ddp-fp16"]
    hooked = with_plan(job, "ddp-fp16")
    assert plan_of(hooked) == "dense"
    assert hooked.spec.trainer["env"][-1] == {"name": "TRIMTAB_DDP_HOOK", "value": "fp16"}
    assert with_plan(job, "dense").spec.trainer.get("env") == job.spec.trainer.get("env")
    with pytest.raises(UserError, match="--plan: 'ddp-fp16': write adaptive"):
        parse_plan("ddp-fp16", "--plan")


WIRES = ", ".join(wires.names())
ANY = "dense or RATIO/COLLECTIVE such as 0.01/all-gather"
EACH = "dense, RATIO/COLLECTIVE such as 0.01/all-gather, ddp-fp16, ddp-powersgd, or grid, with commas between them"


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_plan, "", f"--plan: is empty; write adaptive, {ANY}"),
        (parse_plan, "grid", f"--plan: 'grid': write adaptive, {ANY}"),
        (parse_plan, "static:adaptive", f"--plan: 'static:adaptive': write adaptive, {ANY}"),
        (parse_plans, "", f"--plan: is empty; write adaptive, {EACH}"),
        (parse_plans, "dense,", f"--plan: is empty; write adaptive, {EACH}"),
        (parse_plans, "adaptive,grids", f"--plan: 'grids': write adaptive, {EACH}"),
        (parse_plans, "dense,static:grid", f"--plan: 'static:grid': write adaptive, {EACH}"),
        (parse_plan, "dense/wire=f32", f"--plan: 'dense/wire=f32': wire: 'f32': not known; choose from {WIRES}"),
    ],
)
def test_what_is_no_plan_is_named_with_its_field_and_what_to_write(parse, text: str, complaint: str):
    with pytest.raises(UserError) as refused:
        parse(text, "--plan")
    assert str(refused.value) == complaint
