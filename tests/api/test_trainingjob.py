"""A TrainingJob: what a good one means, and the one line that each wrong one gets."""

import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from trimtab_api.errors import UserError
from trimtab_api.names import SPARSE_COLLECTIVES
from trimtab_api.trainingjob import TrainingJob, load_training_job
from trimtab_api.trainingjob.load import parse_training_job

GOOD = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "labels": {"team": "vision"}},
    "spec": {
        "workers": 4,
        "template": {
            "metadata": {"annotations": {"anything": "goes"}},
            "spec": {
                "nodeSelector": {"pool": "cpu"},
                "containers": [{"name": "sidecar"}, {"name": "trainer", "command": ["python", "train.py"]}],
            },
        },
    },
}
#: GOOD as it is resolved: every field written out.
FULL = TrainingJob.model_validate(GOOD).model_dump(mode="json", by_alias=True)
REMOVED = object()
SPARSE = ", ".join(SPARSE_COLLECTIVES)


def places(data, path=()):
    """The path of every field, outermost first."""
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from places(inner, (*path, step))


def with_change(path, value):
    """GOOD with one field set, or removed; numbers in the path index lists."""
    job = copy.deepcopy(GOOD)
    *parents, last = path
    place = job
    for step in parents:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return job


def written(tmp_path, job):
    file = tmp_path / "job.yaml"
    file.write_text(job if isinstance(job, str) else yaml.safe_dump(job))
    return file


def spec(*path):
    return ("spec", *path)


COMMUNICATION = ("spec", "communication")
CONTAINERS = ("spec", "template", "spec", "containers")
TRAINER = (*CONTAINERS, 1)
IN_TRAINER = "spec.template.spec.containers[1]"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("apiVersion",), "trimtab.dev/v1", "apiVersion: 'trimtab.dev/v1': must be 'trimtab.dev/v1alpha1'"),
        (("apiVersion",), REMOVED, "apiVersion: is missing; write it: Always `trimtab.dev/v1alpha1`"),
        (("kind",), "Job", "kind: 'Job': must be 'TrainingJob'"),
        (("metadata",), REMOVED, "metadata: is missing; write it: Kubernetes' object metadata"),
        (
            ("metadata", "name"),
            "My Job",
            "metadata.name: 'My Job': must be lower-case letters, digits and hyphens; "
            "begin with a letter, end with a letter or digit",
        ),
        (("metadata", "name"), "a" * 53, f"metadata.name: '{'a' * 53}': must have at most 52 characters"),
        (("metadata", "name"), 7, "metadata.name: '7': must be text; put it in quotes"),
        (("spec",), REMOVED, "spec: is missing; write it: What to run, on how many workers, and how"),
        (("spec",), "x", "spec: 'x': must hold fields of its own, indented beneath it"),
        (("kind",), "Network", "kind: 'Network': is a network; give it to --network, and a TrainingJob here"),
        (("spec", 7), 1, "spec[7]: '7': must have text for a name; put it in quotes"),
        (
            ("spec", "network", "a\nb"),
            1,
            "spec.network.a\\nb: '1': is not a field here; choose from probeInterval, probeBudget",
        ),
        (("speck",), {}, "speck: is not a field here; did you mean spec?"),
        (
            spec("workers"),
            REMOVED,
            "spec.workers: is missing; write it: Number of workers: pods, or their local equivalents",
        ),
        (spec("workers"), 0, "spec.workers: '0': must be at least 1"),
        (spec("workers"), "4", "spec.workers: '4': must be a whole number, without quotes"),
        (spec("workers"), 2.5, "spec.workers: '2.5': must be a whole number, without quotes"),
        (spec("worker"), 4, "spec.worker: '4': is not a field here; did you mean workers?"),
        (spec("suspend"), "yes", "spec.suspend: 'yes': must be true or false, without quotes"),
        (spec("restartPolicy"), "Always", "spec.restartPolicy: 'Always': must be 'Never' or 'OnFailure'"),
        (spec("maxRestarts"), -1, "spec.maxRestarts: '-1': must be at least 0"),
        (spec("maxRestarts"), 10**11, "spec.maxRestarts: '100000000000': must be at most 10000"),
        (
            spec("ttlSecondsAfterFinished"),
            10**11,
            "spec.ttlSecondsAfterFinished: '100000000000': must be at most 31536000",
        ),
        (spec("activeDeadlineSeconds"), 10**11, "spec.activeDeadlineSeconds: '100000000000': must be at most 31536000"),
        (spec("activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds: '0': must be at least 1"),
        (
            spec("template"),
            REMOVED,
            "spec.template: is missing; write it: "
            "Kubernetes pod template, kept as it is; its container `trainer` runs the command",
        ),
        (spec("template"), {}, "spec.template.spec: write a pod's spec with a container named trainer"),
        (CONTAINERS, "trainer", "spec.template.spec.containers: 'trainer': write a list of containers"),
        (
            (*CONTAINERS, 1, "name"),
            "main",
            "spec.template.spec.containers: '[sidecar, main]': "
            "name exactly one container trainer; it runs the training command",
        ),
        (
            (*CONTAINERS, 1, "command"),
            REMOVED,
            "spec.template.spec.containers[1].command: "
            "write a list of strings, such as [python, train.py]; quote numbers",
        ),
        (
            (*CONTAINERS, 1, "command"),
            "python train.py",
            "spec.template.spec.containers[1].command: 'python train.py': "
            "write a list of strings, such as [python, train.py]; quote numbers",
        ),
        (
            (*CONTAINERS, 1, "args"),
            ["--epochs", 3],
            "spec.template.spec.containers[1].args: '[--epochs, 3]': "
            "write a list of strings, such as [python, train.py]; quote numbers",
        ),
        (
            (*CONTAINERS, 1, "command"),
            ["pyt\0hon"],
            "spec.template.spec.containers[1].command[0]: 'pyt\\x00hon': "
            "holds a NUL character, which no process can be given; remove it",
        ),
        ((*TRAINER, "workingDir"), 3, f"{IN_TRAINER}.workingDir: '3': must be text; put it in quotes"),
        ((*TRAINER, "env"), {"A": "b"}, f"{IN_TRAINER}.env: write a list, such as [{{name: GREETING, value: hello}}]"),
        (
            (*TRAINER, "env"),
            ["A"],
            f"{IN_TRAINER}.env[0]: 'A': write a variable as {{name: GREETING, value: hello}}",
        ),
        (
            (*TRAINER, "env"),
            [{"name": "A"}, {"value": "x"}],
            f"{IN_TRAINER}.env[1].name: name the variable in printable ASCII without =",
        ),
        (
            (*TRAINER, "env"),
            [{"name": "A="}],
            f"{IN_TRAINER}.env[0].name: 'A=': name the variable in printable ASCII without =",
        ),
        (
            (*TRAINER, "env"),
            [{"name": "A", "value": 3}],
            f"{IN_TRAINER}.env[0].value: '3': must be text; put it in quotes",
        ),
        (
            (*TRAINER, "env"),
            [{"name": "A", "value": "\0"}],
            f"{IN_TRAINER}.env[0].value: '\\x00': holds a NUL character, which no process can be given; remove it",
        ),
        (
            (*CONTAINERS, 1, "args"),
            ["\ud800"],
            "spec.template.spec.containers[1].args[0]: \"'\\\\ud800'\": "
            "holds half a character (a surrogate); write it whole",
        ),
        (
            (*CONTAINERS, 1, "args"),
            ["x" * 130_000],
            f"spec.template.spec.containers[1].args[0]: '{'x' * 80}...': "
            "has 130000 bytes, and a process can be given 120000 in one word; put it in a file",
        ),
        (
            (*COMMUNICATION, "policy"),
            "adaptive",
            "spec.communication.policy: 'adaptive': must be 'Adaptive' or 'Static'",
        ),
        (
            (*COMMUNICATION, "policy"),
            "Static",
            "spec.communication.plan: a Static policy needs a plan, such as 0.01/all-gather",
        ),
        (
            (*COMMUNICATION, "plan"),
            "0.01/all-gather",
            "spec.communication.plan: '0.01/all-gather': an Adaptive policy chooses its own; "
            "remove it or say policy: Static",
        ),
        (
            (*COMMUNICATION, "plan"),
            "1%",
            "spec.communication.plan: '1%': write dense, or RATIO/COLLECTIVE with a ratio in (0, 1), "
            "such as 0.01/all-gather",
        ),
        (
            (*COMMUNICATION, "plan"),
            "0.01/gather",
            f"spec.communication.plan: '0.01/gather': not a sparse collective; choose from {SPARSE}",
        ),
        (
            (*COMMUNICATION, "ratio", "min"),
            0.2,
            "spec.communication.ratio.min: '0.2': is more than max (0.1); lower it or raise max",
        ),
        ((*COMMUNICATION, "ratio", "min"), 0, "spec.communication.ratio.min: '0': must be more than 0"),
        ((*COMMUNICATION, "ratio", "max"), 1, "spec.communication.ratio.max: '1': must be less than 1"),
        (
            (*COMMUNICATION, "ratio", "min"),
            "1e-3",
            "spec.communication.ratio.min: '1e-3': must be a number; write 0.001",
        ),
        (
            (*COMMUNICATION, "ratio", "candidates"),
            [0.1, 0.5],
            "spec.communication.ratio.candidates[1]: '0.5': lies outside min..max (0.001..0.1); "
            "remove it or widen the bounds",
        ),
        (
            (*COMMUNICATION, "ratio", "candidates"),
            [0.1, 0.01, 0.1],
            "spec.communication.ratio.candidates[2]: '0.1': is there twice; remove one",
        ),
        (
            (*COMMUNICATION, "collectives"),
            ["all-gather", "all-gather"],
            "spec.communication.collectives[1]: 'all-gather': is there twice; remove one",
        ),
        (
            (*COMMUNICATION, "warmupSteps"),
            10**11,
            "spec.communication.warmupSteps: '100000000000': must be at most 1000000",
        ),
        (
            (*COMMUNICATION, "fusion", "bufferSize"),
            "0MB",
            "spec.communication.fusion.bufferSize: '0MB': "
            "holds nothing; write a size such as 25MB, or single for one buffer",
        ),
        (
            (*COMMUNICATION, "ratio", "candidates"),
            [],
            "spec.communication.ratio.candidates: '[]': must have at least 1 entries",
        ),
        (
            (*COMMUNICATION, "ratio", "candidates"),
            0.1,
            "spec.communication.ratio.candidates: '0.1': must be a list, such as [a, b]",
        ),
        (
            (*COMMUNICATION, "collectives"),
            ["dense-ring"],
            f"spec.communication.collectives[0]: 'dense-ring': not known; choose from {SPARSE}",
        ),
        (
            (*COMMUNICATION, "sparsifier"),
            "top-k",
            "spec.communication.sparsifier: 'top-k': not known; choose from tracked, topk, mstopk",
        ),
        (
            (*COMMUNICATION, "fusion", "bufferSize"),
            25,
            "spec.communication.fusion.bufferSize: '25': write it with its unit, such as 25MB",
        ),
        (
            (*COMMUNICATION, "fusion", "bufferSize"),
            "25Mb",
            "spec.communication.fusion.bufferSize: '25Mb': "
            "write a size such as 25MB or 64MiB (units: B, kB, MB, GB, KiB, MiB, GiB)",
        ),
        (
            (*COMMUNICATION, "trials", "budget"),
            "10%",
            "spec.communication.trials.budget: '10%': must be a number",
        ),
        (
            (*COMMUNICATION, "speedWeight"),
            2,
            "spec.communication.speedWeight: '2': must be at most 1",
        ),
        (
            (*COMMUNICATION, "timeout"),
            "500ms",
            "spec.communication.timeout: '500ms': must be at least 1s and at most 24h",
        ),
        (
            (*COMMUNICATION, "timeout"),
            "25h",
            "spec.communication.timeout: '25h': must be at least 1s and at most 24h",
        ),
        (
            spec("network", "probeInterval"),
            2,
            "spec.network.probeInterval: '2': write it with its unit, such as 2s",
        ),
        (spec("network", "probeInterval"), "50ms", "spec.network.probeInterval: '50ms': must be at least 100ms"),
        (
            spec("network", "interval"),
            "2s",
            "spec.network.interval: '2s': is not a field here; did you mean probeInterval?",
        ),
        (
            spec("target"),
            {"value": 1.97},
            "spec.target.value: '1.97': an accuracy is a share, more than 0 and at most 1, such as 0.97",
        ),
        (spec("target"), {"value": float("nan")}, "spec.target.value: 'nan': must be a finite number"),
        (
            spec("target"),
            {"value": float("inf"), "metric": "f"},
            "spec.target.value: 'inf': must be a finite number",
        ),
        (
            spec("target"),
            {"metric": "loss"},
            "spec.target.value: is missing; write it: "
            "The value to reach; an accuracy is a share, more than 0 and at most 1",
        ),
        (
            spec("target"),
            {"value": 0.97, "when": 1},
            "spec.target.when: '1': is not a field here; choose from metric, value",
        ),
    ],
)
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
        (
            "",
            "is empty; write a TrainingJob, which begins with "
            "`apiVersion: trimtab.dev/v1alpha1` and `kind: TrainingJob`",
        ),
        ("- a", "is not a TrainingJob; begin with `apiVersion: trimtab.dev/v1alpha1` and `kind: TrainingJob`"),
        ("a: [1", "is not valid YAML at line 1, column 6: expected ',' or ']', but got '<stream end>'; mend it there"),
        ("a: 1\na: 2", "is not valid YAML at line 2, column 1: the key a is written twice; mend it there"),
        (
            "[" * 3000,
            "is not valid YAML at line 1, column 65: more than 64 lists or mappings are in one another; mend it there",
        ),
        ("a: &b [*b]", "is not valid YAML at line 1, column 8: b holds itself; mend it there"),
        ("a: 2001-13-45", "is not valid YAML: month must be in 1..12; mend that, or put it in quotes"),
        (
            "a: \0",
            "is not valid YAML: unacceptable character #x0000: special characters are not allowed "
            'in "<unicode string>", position 3; mend that, or put it in quotes',
        ),
        ("a: 1\n---\nb: 2", "is not valid YAML at line 2, column 1: but found another document; mend it there"),
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
    assert communication.ratio.candidates == (0.1, 0.033, 0.011, 0.004, 0.001)
    assert communication.collectives == SPARSE_COLLECTIVES
    assert communication.fusion.buffer_size == 25_000_000
    assert (communication.trials.iterations, communication.trials.budget) == (10, 0.1)
    assert (job.spec.network.probe_interval, job.spec.network.probe_budget) == (2.0, 0.02)


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


def test_a_job_never_changes(tmp_path):
    job = load_training_job(written(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        job.spec.workers = 5  # type: ignore[misc]


def test_python_names_are_not_yaml_names(tmp_path):
    with pytest.raises(UserError, match=r"spec\.processes_per_worker"):
        load_training_job(written(tmp_path, with_change(("spec", "processes_per_worker"), 2)))
    assert TrainingJob.model_validate(GOOD).spec.processes_per_worker == 1
