"""The reference page of TrainingJob, made from its types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab_api.names import RESERVED_VARIABLES
from trimtab_api.trainingjob.crd import crd
from trimtab_api.trainingjob.rules import MUTABLE

_HEAD = f"""\
# TrainingJob

<!-- Generated from the types in trimtab_api.trainingjob by `make generate`; do not edit. -->

A `TrainingJob` (`trimtab.dev/v1alpha1`) says what to train, on how many workers, and how gradients may cross the
network. The same file runs on one machine with `trimtab run job.yaml` and on a cluster with `kubectl apply -f
job.yaml`.

```yaml
apiVersion: trimtab.dev/v1alpha1
kind: TrainingJob
metadata:
  name: example
spec:
  workers: 4
  template:
    spec:
      containers:
        - name: trainer
          image: registry.example.com/mine:1
          command: [python, train.py]
```

Every other field has a default. Unknown fields are refused. `template` and `metadata` are Kubernetes' own:
`template` takes the fields that a pod template had when Trimtab was released (`kubectl explain
trainingjob.spec.template.spec`), without `ephemeralContainers`. A list there has at most 64 items (containers: 16;
`env`, `ports`, `volumeMounts` and values of a selector: 256; `command` and `args`: 1024), a map 256, a text 4096
characters (`command`, `args` and values: 131072; annotations: 262144). Durations are written `2s` or `100ms`, sizes
`25MB` or `64MiB`.

`trimtab run` reads YAML as kubectl does: `Y` and `on` are true, `1e-4` and `008` are numbers, `010` is 8. Put such a
value in quotes where text is needed, such as in `args` and `env`. The file may hold objects of other kinds, as further
documents or in a `List`, and exactly one TrainingJob. It has at most 500 kB and 20,000 values.

`metadata.name` has at most 52 lower-case letters, digits and hyphens; it begins with a letter and ends with a letter or
digit, because pods and a Service are named after it.

Of the container `trainer`, one machine uses `command`, `args`, `env` and `workingDir`; the rest is for clusters. The
name of a variable in `env` is printable ASCII without `=`, its value text (`"3"`, not `3`); `valueFrom` and `envFrom`
need a cluster. `command` and `args` may refer to variables as `$(NAME)`: those of `env`, and `MASTER_ADDR`,
`MASTER_PORT`, `TRIMTAB_JOB`, `TRIMTAB_RUN_DIR`, `TRIMTAB_POD_IP` and `JOB_COMPLETION_INDEX` (the worker, from 0). A
value in `env` may refer to those before it in `env` alone, as everywhere in Kubernetes: what it does not know stays as
it is written, and `trimtab run` says so. `$$` is a dollar. The launcher's own variables may not be set in `env`:
{", ".join(f"`{variable}`" for variable in RESERVED_VARIABLES)};
on one machine, `GLOO_SOCKET_IFNAME` and `TRIMTAB_SECRET` neither.
On one machine the job runs whatever `suspend` and `managedBy` say.
"""

_STATUS = f"""\
## On a cluster

The API server refuses what a file would be refused for. Once a job exists, only
{", ".join(f"`{name}`" for name in MUTABLE)} may change;
`workers` only if the job has `checkpoint`: all ranks write one, and as many as are asked for go on from it.
The trainer needs an image; `GLOO_SOCKET_IFNAME` in its environment names the network device where a pod's is not `eth0`
(on the host's network); of a list, separated by commas, the first that has an IPv4 address there counts.
A volume named `trimtab-run` in the template is where runs are kept, if there is one: each
job in the folder `NAMESPACE/NAME`, and its earlier attempts in `attempts/` there.

The operator writes the status. `Ready` sums up the other conditions; new figures are written about once a minute (the
chart's `operator.statusIntervalSeconds`), a change of state, condition or plan at once.
"""


def reference() -> str:
    """Return the page, in Markdown: one table of every field, its type, default and meaning."""
    properties = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, each, is_required in _fields(properties["spec"], "spec"):
        default = "required" if is_required else _default(each)
        lines.append(f"| `{path}` | {_type(each)} | {default} | {each.get('description', '')} |")
    lines += ["", _STATUS, "| field | type | meaning |", "|---|---|---|"]
    lines += [
        f"| `{path}` | {_type(each)} | {each.get('description', '')} |"
        for path, each, _ in _fields(properties["status"], "status")
    ]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, each in schema["properties"].items():
        yield f"{path}.{name}", each, name in schema.get("required", ())
        if f"{path}.{name}" == "spec.template":
            continue  # Kubernetes' own, of which Kubernetes' documentation tells
        if "properties" in each:
            yield from _fields(each, f"{path}.{name}")
        elif "properties" in each.get("items", {}):
            yield from _fields(each["items"], f"{path}.{name}[]")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    bounds = [
        f"{'more than' if schema.get('exclusiveMinimum') else 'at least'} {schema['minimum']}"
        if "minimum" in schema
        else "",
        f"{'less than' if schema.get('exclusiveMaximum') else 'at most'} {schema['maximum']}"
        if "maximum" in schema
        else "",
    ]
    return ", ".join([schema["type"], *filter(None, bounds)])


def _default(schema: dict[str, Any]) -> str:
    if "properties" in schema or "default" not in schema:
        return ""
    default = schema["default"]
    if isinstance(default, list):
        return f"`[{', '.join(str(item) for item in default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
