"""The reference page of TrainingJob, made from its types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab_api.trainingjob.crd import crd

_HEAD = """\
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
          command: [python, train.py]
```

Every other field has a default. Unknown fields are refused, except inside `template`. Durations are written `2s` or
`100ms`, sizes `25MB` or `64MiB`.
"""


def reference() -> str:
    """The page, in Markdown: one table of every field, its type, default and meaning."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, each, is_required in _fields(schema, "spec"):
        default = "required" if is_required else _default(each)
        lines.append(f"| `{path}` | {_type(each)} | {default} | {each.get('description', '')} |")
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, each in schema["properties"].items():
        yield f"{path}.{name}", each, name in schema.get("required", ())
        if "properties" in each:
            yield from _fields(each, f"{path}.{name}")


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
        return f"`[{', '.join(str(each) for each in default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
