"""Kubernetes' types that a pod template is made of, as the official client knows them, for `scripts/generate`."""

from __future__ import annotations

import re

from kubernetes import client

_ROOT = "V1PodTemplateSpec"
#: Fields that no pod template may have.
_NEVER = {"V1PodSpec": {"ephemeral_containers"}}
#: Metadata that a template may have: the rest is the API server's own.
_METADATA = ("annotations", "creation_timestamp", "finalizers", "labels", "name", "namespace")
_QUANTITIES = {"limits", "requests", "overhead", "sizeLimit", "divisor"}

HEAD = '''"""Kubernetes' types that a pod template is made of: of each type its fields, and the kind of each field.

Generated from Kubernetes' client by `make generate`; do not edit. A kind is one of str, int, bool, time, quantity, and
intOrStr, or another type. ``[]`` before it: a list; ``{}``: a map by name; ``!``: the field is required.
"""

# ruff: noqa: E501
# fmt: off

TYPES: dict[str, dict[str, str]] = {
'''


def kubernetes_types() -> str:
    """The module, as Python text."""
    found: dict[str, dict[str, str]] = {}
    _collect(_ROOT, found)
    lines = [
        f"    {_short(name)!r}: {fields!r}," for name, fields in sorted(found.items(), key=lambda each: _short(each[0]))
    ]
    return HEAD + "\n".join(lines).replace("'", '"') + "\n}\n"


def _collect(name: str, found: dict[str, dict[str, str]]) -> None:
    model = getattr(client, name)
    required = {each.serialization_alias or name for name, each in model.model_fields.items() if each.is_required()}
    fields: dict[str, str] = {}
    found[name] = fields
    for attribute, kind in model.openapi_types.items():
        if attribute in _NEVER.get(name, ()) or (name == "V1ObjectMeta" and attribute not in _METADATA):
            continue
        field = model.attribute_map[attribute]
        fields[field] = ("!" if field in required else "") + _kind(field, kind, found)


def _kind(field: str, kind: str, found: dict[str, dict[str, str]]) -> str:
    if listed := re.fullmatch(r"List\[(.*)\]", kind):
        return "[]" + _kind(field, listed[1], found)
    if mapped := re.fullmatch(r"Dict\[str, (.*)\]", kind):
        return "{}" + _kind(field, mapped[1], found)
    if kind == "str" and field in _QUANTITIES:
        return "quantity"
    plain = {"str": "str", "int": "int", "bool": "bool", "datetime": "time", "object": "intOrStr"}
    if kind in plain:
        return plain[kind]
    if kind not in found:
        _collect(kind, found)
    return _short(kind)


def _short(name: str) -> str:
    return name.removeprefix("Core").removeprefix("V1")
