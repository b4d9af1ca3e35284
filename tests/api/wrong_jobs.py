"""A TrainingJob that is good, and every way in which one goes wrong, with the line that it gets."""

import copy

from wrong_communication import WRONG_COMMUNICATION

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


CONTAINERS = ("spec", "template", "spec", "containers")
TRAINER = (*CONTAINERS, 1)
IN_TRAINER = "spec.template.spec.containers[1]"

NO_SECRET = (
    "may hold a password or a token, which would be printed; write the URL without it, and set what the library reads"
    " in the trainer's environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3, FSSPEC_SFTP_PASSWORD for sftp"
)

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
    (
        ("metadata",),
        {"generateName": "digits-"},
        "metadata.generateName: 'digits-': makes up a name on a cluster only; write metadata.name, which also works "
        "there",
    ),
    (("metadata", "name"), 7, "metadata.name: '7': must be text; put it in quotes"),
    (("spec",), REMOVED, "spec: is missing; write it: What to run, on how many workers, and how"),
    (("spec",), "x", "spec: 'x': must hold fields of its own, indented beneath it"),
    (("kind",), "Network", "kind: 'Network': is a network; give it to --network, and a TrainingJob here"),
    (("spec", 7), 1, "spec[7]: '7': must have text for a name; put it in quotes"),
    (
        ("spec", "network", "a\nb"),
        1,
        "spec.network.a\\nb: '1': is not a field here; choose from probeInterval, probeBudget, probeBytesPerDay, "
        "probe, secondInterface",
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
        "spec.template.spec.containers[1].args[1]: '3': must be text; put it in quotes",
    ),
    ((*TRAINER, "args"), [None], f"{IN_TRAINER}.args[0]: 'null': must be text; put it in quotes"),
    (
        (*TRAINER, "command"),
        ["python", True],
        f"{IN_TRAINER}.command[1]: 'true': must be text; put it in quotes",
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
        ["x" * 130_000],
        f"spec.template.spec.containers[1].args[0]: '{'x' * 160}...': "
        "has 130000 bytes, and a process can be given 120000 in one word; put it in a file",
    ),
    *WRONG_COMMUNICATION,
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
    (
        spec("network", "probeBytesPerDay"),
        10**9,
        "spec.network.probeBytesPerDay: '1000000000': write it with its unit, such as 50GB",
    ),
    (
        spec("network", "probeBytesPerDay"),
        "0GB",
        "spec.network.probeBytesPerDay: '0GB': is nothing; write a size such as 50GB",
    ),
    (
        spec("checkpoint"),
        {},
        "spec.checkpoint.path: is missing; name the place of checkpoints by path or by volumeClaim, or write"
        " inMemory: neighbour",
    ),
    (
        spec("checkpoint"),
        {"path": "/c", "volumeClaim": {"size": "1Gi"}},
        "spec.checkpoint.path: '/c': is a second place beside volumeClaim; remove one of the two",
    ),
    (
        spec("checkpoint"),
        {"path": "s3://key:se/cret@bucket/job"},
        f"spec.checkpoint.path: {NO_SECRET}",
    ),
    (
        spec("checkpoint"),
        {"path": "https://host/folder?signature=secret"},
        f"spec.checkpoint.path: {NO_SECRET}",
    ),
    (
        spec("checkpoint"),
        {"volumeClaim": {}},
        "spec.checkpoint.volumeClaim.existing: write either existing, the name of a claim, or size, for a claim that is"
        " made",
    ),
    (
        spec("checkpoint"),
        {"volumeClaim": {"existing": "c", "accessModes": ["ReadWriteOnce"]}},
        "spec.checkpoint.volumeClaim.existing: 'c': is a claim that has its storage class and access modes; remove"
        " storageClassName and accessModes",
    ),
    (
        spec("checkpoint"),
        {"volumeClaim": {"size": "lots"}},
        "spec.checkpoint.volumeClaim.size: 'lots': write a size as Kubernetes does, such as 10Gi",
    ),
    (
        spec("checkpoint"),
        {"volumeClaim": {"existing": "My_Claim"}},
        "spec.checkpoint.volumeClaim.existing: 'My_Claim': name a PersistentVolumeClaim of the job's namespace, such as"
        " checkpoints",
    ),
    (
        spec("checkpoint"),
        {"inMemory": "everywhere"},
        "spec.checkpoint.inMemory: 'everywhere': must be 'neighbour'",
    ),
    (
        spec("checkpoint"),
        {"inMemory": "neighbour", "inMemoryInterval": "10ms"},
        "spec.checkpoint.inMemoryInterval: '10ms': must be at least 1s",
    ),
    (
        spec("checkpoint"),
        {"path": "/c", "interval": "10ms"},
        "spec.checkpoint.interval: '10ms': must be at least 1s",
    ),
    (spec("checkpoint"), {"path": "/c", "keep": 0}, "spec.checkpoint.keep: '0': must be at least 1"),
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
