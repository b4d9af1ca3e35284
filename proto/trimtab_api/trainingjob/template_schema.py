"""What ``spec.template``, Kubernetes' pod template, may hold: its schema for a cluster, its names for one machine.

The schema has bounds and no descriptions. Bounds keep a tenant from storing what takes much more memory than text, and
the API server needs them to estimate what its rules cost. An object of etcd has at most 1.5 MB, whatever they allow.
"""

from __future__ import annotations

from typing import Any

from trimtab_api.trainingjob.kubernetes_types import TYPES

Schema = dict[str, Any]

# On one machine, where no API server checks the template, `trimtab run` holds a file against these names. A test holds
# them against Kubernetes' client.

#: The definition's schema leaves out what the API server alone sets, and the containers of debuggers.
METADATA = frozenset(TYPES["ObjectMeta"]) | {
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
}
POD_TEMPLATE = frozenset(TYPES["PodTemplateSpec"])
POD = frozenset(TYPES["PodSpec"]) | {"ephemeralContainers"}
CONTAINER = frozenset(TYPES["Container"])
VARIABLE = frozenset(TYPES["EnvVar"])
VOLUME = frozenset(TYPES["Volume"])

#: Most items of a list, by field; `_LIST` where a field is not here.
_LISTS = {
    "args": 1024,
    "command": 1024,
    "containers": 16,
    "env": 256,
    "initContainers": 16,
    "items": 256,
    "ports": 256,
    "values": 256,
    "volumeMounts": 256,
}
_LIST = 64
#: Most names of a map.
_MAP = 256
#: Most characters of a text, by field; `_TEXT` where a field is not here. Linux gives a process words of 128 KiB.
_TEXTS = {"args": 131072, "command": 131072, "value": 131072, "annotations": 262144, "image": 1024, "name": 253}
_TEXT = 4096
_SCALARS: dict[str, Schema] = {
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "quantity": {"x-kubernetes-int-or-string": True, "maxLength": 64},
    "intOrStr": {"x-kubernetes-int-or-string": True, "maxLength": 253},
}
#: Constraints of fields beyond their type, by type and field.
_FURTHER: dict[tuple[str, str], Schema] = {
    ("PodSpec", "containers"): {"minItems": 1},
    ("PodSpec", "restartPolicy"): {"maxLength": 16},
    ("PodSpec", "hostname"): {"maxLength": 253},
    ("PodSpec", "subdomain"): {"maxLength": 253},
    ("Container", "command"): {"minItems": 1},
    ("Container", "args"): {"minItems": 1},
    ("Container", "image"): {"minLength": 1},
}
#: Fields that Kubernetes does not require and a TrainingJob does.
_REQUIRED = {"PodTemplateSpec": ["spec"]}


def template_schema() -> Schema:
    """Return the schema as plain data."""
    return _object("PodTemplateSpec")


def _object(name: str) -> Schema:
    fields = TYPES[name]
    schema: Schema = {
        "type": "object",
        "properties": {
            field: {**_of(field, kind.removeprefix("!")), **_FURTHER.get((name, field), {})}
            for field, kind in fields.items()
        },
    }
    required = _REQUIRED.get(name) or [field for field, kind in fields.items() if kind.startswith("!")]
    return {**schema, "required": required} if required else schema


def _of(field: str, kind: str) -> Schema:
    if kind.startswith("[]"):
        return {"type": "array", "maxItems": _LISTS.get(field, _LIST), "items": _of(field, kind[2:])}
    if kind.startswith("{}"):
        # Other tools write null for a name that they leave empty.
        text = {**_of(field, kind[2:]), "nullable": True}
        return {"type": "object", "maxProperties": _MAP, "additionalProperties": text}
    if kind == "str":
        return {"type": "string", "maxLength": _TEXTS.get(field, _TEXT)}
    return dict(_SCALARS[kind]) if kind in _SCALARS else _object(kind)
