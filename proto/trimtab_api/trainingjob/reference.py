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

A `TrainingJob` (`trimtab.dev/v1alpha1`) says what to train, on how many workers, and how gradients cross the network.
The same file runs on one machine with `trimtab run job.yaml` and on a cluster with `kubectl apply -f job.yaml`.

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

All other fields are optional. Unknown fields are refused. Durations are written `2s` or `100ms`, sizes `25MB` or
`64MiB`. `template` takes the fields of Kubernetes' pod template (`kubectl explain trainingjob.spec.template.spec`)
without `ephemeralContainers`.

| limit | value |
|---|---|
| `metadata.name` | 52 lower-case letters, digits and hyphens; begins with a letter, ends with a letter or digit |
| file | 500 kB and 20,000 values; exactly one TrainingJob, and any objects of other kinds |
| list | 64 items; containers 16; `env`, `ports`, `volumeMounts`, selector values 256; `command`, `args` 1024 |
| map | 256 items |
| text | 4096 characters; `command`, `args` and values 131072; annotations 262144 |

`trimtab run` reads YAML as kubectl does: `Y` and `on` are true, `1e-4` and `008` are numbers, `010` is 8. Quote such a
value where text is needed.

On one machine, the container `trainer` uses `command`, `args`, `env` and `workingDir` only; `suspend` and `managedBy`
have no effect. In `env`, names are printable ASCII without `=`, and values are text (`"3"`, not `3`); `valueFrom` and
`envFrom` need a cluster. `command` and `args` may refer to variables as `$(NAME)`: those of `env`, and `MASTER_ADDR`,
`MASTER_PORT`, `TRIMTAB_JOB`, `TRIMTAB_RUN_DIR`, `TRIMTAB_POD_IP` and `JOB_COMPLETION_INDEX` (the worker, from 0). A
value in `env` may refer to earlier variables of `env`. Unknown references stay as they are. `$$` is a dollar.

`env` may not set {", ".join(f"`{variable}`" for variable in RESERVED_VARIABLES)};
on one machine also not `GLOO_SOCKET_IFNAME` and `TRIMTAB_SECRET`.
"""

#: Words of a description that only repeats the names of a group's fields.
_LONGEST_PLAIN_DESCRIPTION = 7

_STATUS = f"""\
## On a cluster

Once a job exists, only {", ".join(f"`{name}`" for name in MUTABLE)} may change.
`workers` may change only if the job has `checkpoint`.

- The trainer needs an image.
- If the pod's network device is not `eth0`, name it in `GLOO_SOCKET_IFNAME`. Of a list with commas, the first device
  with an IPv4 address counts.
- If the template has a volume `trimtab-run`, the [run directory](run-directory.md) is `NAMESPACE/NAME` on it.

The operator writes the status: a change of state, condition or plan at once, new figures about once a minute (the
chart's `operator.statusIntervalSeconds`). Conditions have the usual fields of Kubernetes; `Ready` sums up the others.
"""


def reference() -> str:
    """Return the page, in Markdown: one table of every field, its type, default and meaning."""
    properties = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, each, is_required in _shown(properties["spec"], "spec"):
        default = "required" if is_required else _default(each)
        lines.append(f"| `{path}` | {_type(each)} | {default} | {each.get('description', '')} |")
    lines += ["", _STATUS, "| field | meaning |", "|---|---|"]
    for path, each, _ in _shown(properties["status"], "status"):
        if not path.startswith("status.conditions[].") or "enum" in each:
            values = f"{_type(each)}: " if "enum" in each else ""
            lines.append(f"| `{path}` | {values}{each.get('description', '')} |")
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def _shown(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield all fields but groups of fields whose description says no more than their names."""
    for name, each, is_required in _fields(schema, path):
        is_group = "properties" in each or "properties" in each.get("items", {})
        if not is_group or len(each.get("description", "").split()) > _LONGEST_PLAIN_DESCRIPTION:
            yield name, each, is_required


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
    lower, upper = "> " if schema.get("exclusiveMinimum") else "≥ ", "< " if schema.get("exclusiveMaximum") else "≤ "
    bounds = [sign + str(schema[key]) for key, sign in (("minimum", lower), ("maximum", upper)) if key in schema]
    return ", ".join([schema["type"], *bounds])


def _default(schema: dict[str, Any]) -> str:
    if "properties" in schema or "default" not in schema:
        return ""
    default = schema["default"]
    if isinstance(default, list):
        return f"`[{', '.join(str(item) for item in default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
