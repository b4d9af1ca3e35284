"""A TrainingJob: what a good one means, and the one line that each wrong one gets."""

import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab_api.catalogue import DEFAULT_COLLECTIVES
from trimtab_api.errors import UserError
from trimtab_api.trainingjob import TrainingJob, load_job_file, load_training_job
from trimtab_api.trainingjob.communication import RatioBounds
from trimtab_api.trainingjob.load import parse_training_job
from wrong_communication import COMMUNICATION
from wrong_jobs import CONTAINERS, GOOD, REMOVED, WRONG, spec, with_change

HEAD = "`apiVersion: trimtab.dev/v1alpha1` and `kind: TrainingJob`"
#: GOOD as it is resolved: every field written out.
FULL = TrainingJob.model_validate(GOOD).model_dump(mode="json", by_alias=True)


def places(data, path=()):
    """The path of every field, outermost first."""
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from places(inner, (*path, step))


def written(tmp_path, job):
    file = tmp_path / "job.yaml"
    file.write_text(job if isinstance(job, str) else yaml.safe_dump(job))
    return file


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_a_wrong_job_gets_one_line_with_file_field_value_and_remedy(tmp_path, path, value, message):
    file = written(tmp_path, with_change(path, value))
    with pytest.raises(UserError) as error:
        load_training_job(file)
    assert str(error.value) == f"{file}: {message}"


def test_a_misspelled_field_is_told_rather_than_the_one_that_it_leaves_missing(tmp_path):
    job = with_change(spec("workers"), REMOVED)
    job["spec"]["wrokers"] = 4
    with pytest.raises(UserError) as error:
        load_training_job(written(tmp_path, job))
    assert str(error.value).endswith("spec.wrokers: '4': is not a field here; did you mean workers?")
    del job["spec"]["wrokers"]
    job["wrokers"] = 4  # elsewhere, so it explains nothing that is missing there
    with pytest.raises(UserError, match=r"spec\.workers: is missing"):
        load_training_job(written(tmp_path, job))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"is empty; write a TrainingJob, which begins with {HEAD}"),
        ("- a", f"is not a TrainingJob; begin with {HEAD}"),
        ("a: [1", "is not valid YAML at line 1, column 6: expected ',' or ']', but got '<stream end>'; mend it there"),
        ("a: 1\na: 2", "is not valid YAML at line 2, column 1: the key a is written twice; mend it there"),
        (
            "[" * 3000,
            "is not valid YAML at line 1, column 65: more than 64 lists or mappings are in one another; mend it there",
        ),
        ("a: &b [*b]", "is not valid YAML at line 1, column 8: b holds itself; mend it there"),
        (
            "a: \0",
            "is not valid YAML: unacceptable character #x0000: special characters are not allowed "
            'in "<unicode string>", position 3; mend that, or put it in quotes',
        ),
        ("a: 1\n---\nb: 2", "holds no TrainingJobs in 2 objects; keep exactly one TrainingJob in the file"),
        (
            "kind: TrainingJob\n---\nkind: ConfigMap\n---\nkind: TrainingJob",
            "holds 2 TrainingJobs in 3 objects; keep exactly one TrainingJob in the file",
        ),
        ("kind: List\nitems: []", f"is empty; write a TrainingJob, which begins with {HEAD}"),
    ],
)
def test_what_is_no_job_at_all_says_where(tmp_path, text, message):
    file = written(tmp_path, text)
    with pytest.raises(UserError) as error:
        load_training_job(file)
    assert str(error.value) == f"{file}: {message}"


@settings(deadline=None)
@given(
    st.sampled_from(list(places(FULL))),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.text(max_size=9)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.integers() | st.text(), inner, max_size=3)
        ),
    ),
)
def test_whatever_stands_in_a_field_it_is_taken_or_refused_in_one_line(place, value):
    job = copy.deepcopy(FULL)
    *parents, last = place
    within = job
    for step in parents:
        within = within[step]
    within[last] = value
    assert len(refusal(yaml.safe_dump(job)).splitlines()) <= 1


def refusal(text):
    """What is said of a job that is refused; nothing of one that is taken."""
    try:
        parse_training_job(text)
    except UserError as error:
        return str(error)
    return ""


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\); check the path"):
        load_training_job(tmp_path / "none.yaml")


def test_a_good_job_has_the_papers_defaults(tmp_path):
    job = load_training_job(written(tmp_path, GOOD))
    assert job.metadata.name == "digits"
    assert job.spec.num_ranks == 4
    assert job.spec.trainer["command"] == ["python", "train.py"]
    communication = job.spec.communication
    assert (communication.ratio.min, communication.ratio.max) == (0.001, 0.1)
    assert communication.ratio.tried() == (0.1, 0.033, 0.011, 0.004, 0.001)
    assert communication.collectives == DEFAULT_COLLECTIVES
    assert communication.fusion.buffer_size == 25_000_000
    assert (communication.trials.iterations, communication.trials.budget) == (10, 0.05)
    assert (job.spec.network.probe_interval, job.spec.network.probe_budget) == (2.0, 0.02)
    assert job.spec.network.probe_bytes_per_day == 50_000_000_000


@pytest.mark.parametrize(
    ("ratio", "tried"),
    [
        ("{max: 0.02}", (0.011, 0.004, 0.001)),
        ("{min: 0.2, max: 0.3}", (0.3, 0.2)),
        ("{min: 0.05, max: 0.05}", (0.05,)),
        ("{max: 0.02, candidates: [0.02, 0.003]}", (0.02, 0.003)),
    ],
)
def test_bounds_alone_say_which_ratios_are_tried(ratio, tried):
    assert RatioBounds(**yaml.safe_load(ratio)).tried() == tried


@pytest.mark.parametrize("plan", ["dense", "dense-tree", "0.01/all-gather", "0.001/artopk-var-tree"])
def test_a_static_policy_takes_any_plan(tmp_path, plan):
    job = with_change((*COMMUNICATION, "policy"), "Static")
    job["spec"]["communication"]["plan"] = plan
    assert load_training_job(written(tmp_path, job)).spec.communication.plan == plan


def test_one_buffer_for_everything_is_called_single(tmp_path):
    job = with_change((*COMMUNICATION, "fusion", "bufferSize"), "single")
    assert load_training_job(written(tmp_path, job)).spec.communication.fusion.buffer_size == "single"


def test_the_pod_template_is_kept_as_it_is(tmp_path):
    assert load_training_job(written(tmp_path, GOOD)).spec.template == GOOD["spec"]["template"]


@pytest.mark.parametrize("none", [None, []])
def test_a_command_may_have_no_arguments(tmp_path, none):
    job = with_change((*CONTAINERS, 1, "args"), none)
    assert load_training_job(written(tmp_path, job)).spec.template == job["spec"]["template"]


@pytest.mark.parametrize(
    "change",
    [
        (("spec", "network", "probeInterval"), "1234567us"),
        ((*COMMUNICATION, "fusion", "bufferSize"), "1234567B"),
        ((*COMMUNICATION, "fusion", "bufferSize"), "single"),
        (("metadata", "annotations"), {"a": "b"}),
    ],
)
def test_a_job_written_out_reads_back_the_same(tmp_path, change):
    job = load_training_job(written(tmp_path, with_change(*change)))
    text = json.dumps(job.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert load_training_job(written(tmp_path, text)) == job


@pytest.mark.parametrize(
    "objects",
    [
        [GOOD, {"apiVersion": "v1", "kind": "ConfigMap"}],
        [{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret"}, GOOD]}],
        [None, GOOD],
    ],
    ids=["beside a ConfigMap", "in a List", "after an empty document"],
)
def test_the_one_job_among_several_objects_is_read(tmp_path, objects):
    job = load_training_job(written(tmp_path, yaml.safe_dump_all(objects)))
    assert job == TrainingJob.model_validate(GOOD)


@pytest.mark.parametrize(
    ("written_value", "shown"), [("1e-4", "0.0001"), ("Y", "true"), ("008", "8"), ("1.0", "1"), ("010", "8")]
)
def test_a_value_that_kubectl_reads_as_no_text_is_refused_where_text_is_needed(tmp_path, written_value, shown):
    job = with_change((*CONTAINERS, 1, "env"), [{"name": "V", "value": "THE-VALUE"}])
    with pytest.raises(UserError) as error:
        load_training_job(written(tmp_path, yaml.safe_dump(job).replace("THE-VALUE", written_value)))
    field = "spec.template.spec.containers[1].env[0].value"
    assert str(error.value).endswith(f"{field}: {shown!r}: must be text; put it in quotes")


@pytest.mark.parametrize(("written_value", "seed"), [("010", 8), ("1e3", 1000), ("7.0", 7)])
def test_a_number_is_the_one_that_kubectl_reads(tmp_path, written_value, seed):
    text = yaml.safe_dump(with_change(spec("seed"), 12345)).replace("12345", written_value)
    assert load_training_job(written(tmp_path, text)).spec.seed == seed


def test_a_job_never_changes(tmp_path):
    job = load_training_job(written(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        job.spec.workers = 5  # type: ignore[misc]


def test_python_names_are_not_yaml_names(tmp_path):
    with pytest.raises(UserError, match=r"spec\.processes_per_worker"):
        load_training_job(written(tmp_path, with_change(("spec", "processes_per_worker"), 2)))
    assert TrainingJob.model_validate(GOOD).spec.processes_per_worker == 1


NEWER = [
    ("newField",),
    ("spec", "newField"),
    ("spec", "communication", "newField"),
    ("spec", "communication", "ratio", "newField"),
]


@pytest.mark.parametrize("path", NEWER, ids=".".join)
def test_a_field_of_a_newer_version_is_ignored_in_what_was_checked_before_and_refused_in_a_users_file(tmp_path, path):
    job = copy.deepcopy(FULL)
    place = job
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = {"on": True}
    file = written(tmp_path, json.dumps(job))
    assert load_job_file(file).spec == TrainingJob.model_validate(FULL).spec
    with pytest.raises(UserError) as error:
        load_training_job(written(tmp_path, json.dumps(job)))
    assert f"{'.'.join(path)}: is not a field here" in str(error.value)


def test_what_is_wrong_is_refused_in_what_was_checked_before_too(tmp_path):
    with pytest.raises(UserError, match=r"spec\.workers: '0': must be at least 1"):
        load_job_file(written(tmp_path, with_change(spec("workers"), 0)))
