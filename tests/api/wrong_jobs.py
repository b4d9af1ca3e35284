"""A TrainingJob that is good, and every way in which one goes wrong, with the line that it gets."""

import copy

from trimtab_api.catalogue import SPARSE_COLLECTIVES, SPARSIFIERS

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
REMOVED = object()
SPARSE = ", ".join(SPARSE_COLLECTIVES)


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


def spec(*path):
    return ("spec", *path)


COMMUNICATION = ("spec", "communication")
CONTAINERS = ("spec", "template", "spec", "containers")
TRAINER = (*CONTAINERS, 1)
IN_TRAINER = "spec.template.spec.containers[1]"

#: Path of the field in GOOD, the value that it gets instead, what the user is told.
WRONG = [
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
        "spec.network.a\\nb: '1': is not a field here; choose from probeInterval, probeBudget, secondInterface",
    ),
    (("speck",), {}, "speck: is not a field here; did you mean spec?"),
    (
        spec("workers"),
        33,
        "spec.workers: '33': must be at most 32: the monitors of a job measure every pair of its workers, and were "
        "proven with so many; use fewer, with more processesPerWorker",
    ),
    (
        spec("workers"),
        REMOVED,
        "spec.workers: is missing; write it: Number of workers: pods, or their local equivalents; at most 32",
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
        spec("template", "metadata", "labels"),
        ["a"],
        "spec.template.metadata.labels: '[a]': write names and texts, such as {team: vision}",
    ),
    (
        spec("template", "metadata", "annotations", "version"),
        7,
        "spec.template.metadata.annotations.version: '7': must be text; put it in quotes",
    ),
    (
        spec("template", "metadata"),
        "x",
        "spec.template.metadata: 'x': must hold fields of its own, indented beneath it",
    ),
    (
        spec("template", "spec", "initContainers"),
        3,
        "spec.template.spec.initContainers: '3': write a list, each of its items with fields of its own",
    ),
    ((*TRAINER, "ports"), ["x"], f"{IN_TRAINER}.ports: '[x]': write a list, each of its items with fields of its own"),
    (
        (*TRAINER, "volumeMounts"),
        "x",
        f"{IN_TRAINER}.volumeMounts: 'x': write a list, each of its items with fields of its own",
    ),
    (
        spec("template", "spec", "volumes"),
        {"a": "b"},
        "spec.template.spec.volumes: write a list, each of its items with fields of its own",
    ),
    (
        (*CONTAINERS, 1, "name"),
        "main",
        "spec.template.spec.containers: '[sidecar, main]': "
        "name exactly one container trainer; it runs the training command",
    ),
    (
        (*CONTAINERS, 1, "command"),
        REMOVED,
        "spec.template.spec.containers[1].command: write a list of strings, such as [python, train.py]; quote numbers",
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
        f"spec.template.spec.containers[1].args[0]: '{'x' * 160}...': "
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
        f"spec.communication.sparsifier: 'top-k': not known; choose from {', '.join(SPARSIFIERS)}",
    ),
    (
        (*COMMUNICATION, "sparsifierAlternatives"),
        ["dgc", "top-k"],
        f"spec.communication.sparsifierAlternatives[1]: 'top-k': not known; choose from {', '.join(SPARSIFIERS)}",
    ),
    (
        (*COMMUNICATION, "sparsifierAlternatives"),
        ["dgc", "topk", "dgc"],
        "spec.communication.sparsifierAlternatives[2]: 'dgc': is there twice; remove one",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.01/arc-topk/wire=int8/sparsifier=topk"},
        "spec.communication.plan: '0.01/arc-topk/wire=int8/sparsifier=topk': sparsifier: 'topk': arc-topk selects by"
        " itself, and reads no sparsifier; leave the one or the other out",
    ),
    (
        COMMUNICATION,
        {"policy": "Static", "plan": "0.01/arc-topk:per_host=2", "sparsifier": "topk"},
        "spec.communication.sparsifier: 'topk': arc-topk selects by itself, and reads no sparsifier; leave the one or"
        " the other out",
    ),
    (
        COMMUNICATION,
        {"collectives": ["all-gather", "arc-topk"], "sparsifier": "topk"},
        "spec.communication.sparsifier: 'topk': arc-topk selects by itself, and reads no sparsifier; leave the one or"
        " the other out",
    ),
    (
        COMMUNICATION,
        {"collectives": ["all-gather", "arc-topk"], "sparsifierAlternatives": ["topk"]},
        "spec.communication.sparsifierAlternatives: '[topk]': arc-topk selects by itself, and reads no sparsifier;"
        " leave the one or the other out",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["single", "halves"],
        "spec.communication.fusion.alternatives[1]: 'halves': not known; choose from fixed, single, equal, cuts, "
        "safusion, none, mg-wfbp, omgs, cupcake, autotuned, optimal",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["equal"],
        "spec.communication.fusion.alternatives[0]: 'equal': needs the option buffers: how many",
    ),
    (
        (*COMMUNICATION, "fusion", "alternatives"),
        ["single", "single:selection=behind"],
        "spec.communication.fusion.alternatives[1]: 'single': is there twice; remove one",
    ),
    (
        (*COMMUNICATION, "schedules"),
        ["at-once"],
        "spec.communication.schedules[0]: 'at-once': not known; choose from wait-free, after-backward,"
        " priority, us-byte, deft, overlap",
    ),
    (
        (*COMMUNICATION, "schedules"),
        [],
        "spec.communication.schedules: '[]': must have at least 1 entries",
    ),
    (
        COMMUNICATION,
        {"schedules": ["wait-free", "deft:merged=sum"], "localSteps": {"max": 4}},
        "spec.communication.localSteps.max: '4': deft:merged=sum of schedules merges gradients of several steps, and"
        " local steps send none; write max: 0, or leave the schedule out",
    ),
    (
        (*COMMUNICATION, "localSteps"),
        {"max": 0, "outerMomentum": 0.9},
        "spec.communication.localSteps.max: '0': leaves no rounds that an outer step could follow; raise it, or remove"
        " outerRate and outerMomentum",
    ),
    (
        (*COMMUNICATION, "localSteps", "outerMomentum"),
        1.0,
        "spec.communication.localSteps.outerMomentum: '1.0': must be less than 1",
    ),
    (
        (*COMMUNICATION, "valueFormats"),
        ["float32", "int16"],
        "spec.communication.valueFormats[1]: 'int16': not known; choose from float32, bfloat16, int8, int4, int2",
    ),
    (
        (*COMMUNICATION, "valueFormats"),
        ["float32", "int2"],
        "spec.communication.valueFormats[1]: 'int2': artopk-star-ring sends float32 or bfloat16 or int8 or int4; leave"
        " the one or the other out",
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
        (*COMMUNICATION, "trials", "iterations"),
        2,
        "spec.communication.trials.iterations: '2': must be at least 3",
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
    (
        spec("network", "secondInterface"),
        "net 1",
        "spec.network.secondInterface: 'net 1': name it as `ip link` lists it, such as net1",
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
]
