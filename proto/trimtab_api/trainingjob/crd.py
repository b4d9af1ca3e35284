"""The CustomResourceDefinition of TrainingJob, made from its types."""

from __future__ import annotations

from typing import Any

from trimtab_api.trainingjob.pod_template import TEMPLATE_RULES
from trimtab_api.trainingjob.rules import MUTABLE, RULES, immutable
from trimtab_api.trainingjob.status import Status
from trimtab_api.trainingjob.template_schema import template_schema
from trimtab_api.trainingjob.types import API_VERSION, KIND, TrainingJob

#: Columns of `kubectl get trainingjobs`: name, type, path.
_PRINTER_COLUMNS = (
    ("State", "string", ".status.state"),
    ("Workers", "integer", ".spec.workers"),
    ("Ratio", "string", ".status.plan.ratio"),
    ("Collective", "string", ".status.plan.collective"),
    ("Latency", "string", ".status.network.latency"),
    ("Bandwidth", "string", ".status.network.bandwidth"),
    ("Step", "integer", ".status.step"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
#: Further columns of `kubectl get trainingjobs -o wide`.
_WIDE_COLUMNS = (("Checkpoint", "date", ".status.checkpoint.time"),)

#: Keywords that a structural schema may not hold, or need not.
_DROPPED = ("title", "additionalProperties", "$defs", "const")

#: Bounds of a list and of a text in the spec that have none of their own.
_MOST_ITEMS, _MOST_CHARACTERS = 64, 1024

Schema = dict[str, Any]


def crd() -> Schema:
    """Return the definition as plain data: structural schema, defaults, printer columns, status subresource."""
    group, version = API_VERSION.split("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"trainingjobs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": "trainingjobs",
                "singular": "trainingjob",
                "shortNames": ["tj"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        *({"name": name, "type": kind, "jsonPath": path} for name, kind, path in _PRINTER_COLUMNS),
                        *(
                            {"name": name, "type": kind, "jsonPath": path, "priority": 1}
                            for name, kind, path in _WIDE_COLUMNS
                        ),
                    ],
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }


def _object_schema() -> Schema:
    """Return the schema of the whole object; metadata is left to the API server."""
    generated = TrainingJob.model_json_schema(by_alias=True)
    root = _structural(generated, generated["$defs"])
    spec = _bounded(root["properties"]["spec"])
    spec["properties"]["template"] = {
        "description": spec["properties"]["template"]["description"],
        **template_schema(),
    }
    schema = {
        "type": "object",
        "description": root["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _status_schema(),
        },
    }
    for rule in (*RULES, *TEMPLATE_RULES, *(immutable(field) for field in spec["properties"] if field not in MUTABLE)):
        said = {"rule": rule.holds, "message": rule.message, "fieldPath": rule.field}
        rules = _at(schema, rule.at).setdefault("x-kubernetes-validations", [])
        rules.append({key: value for key, value in said.items() if value})
    return schema


def _bounded(schema: Schema) -> Schema:
    """Add bounds wherever a list or a text has none: a tenant writes it."""
    bounded = dict(schema)
    if bounded.get("type") == "array":
        bounded.setdefault("maxItems", _MOST_ITEMS)
    if bounded.get("type") == "string" and "enum" not in bounded:
        bounded.setdefault("maxLength", _MOST_CHARACTERS)
    if "properties" in bounded:
        bounded["properties"] = {name: _bounded(each) for name, each in bounded["properties"].items()}
    if "items" in bounded:
        bounded["items"] = _bounded(bounded["items"])
    return bounded


def _status_schema() -> Schema:
    """Return the schema of the status, without defaults: the operator alone writes it."""
    generated = Status.model_json_schema(by_alias=True)
    return _without_defaults(_structural(generated, generated["$defs"]))


def _without_defaults(schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in plain:
        plain["properties"] = {name: _without_defaults(each) for name, each in plain["properties"].items()}
    if "items" in plain:
        plain["items"] = _without_defaults(plain["items"])
    return plain


def _at(schema: Schema, path: str) -> Schema:
    """Return the schema at a dotted path; ``[]`` after a name goes on to the items of that list."""
    for step in filter(None, path.split(".")):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


def _structural(schema: Schema, definitions: Schema) -> Schema:
    """Convert a JSON schema for Kubernetes: no references, no alternatives, a default for every object that has one."""
    may_be_absent = schema.get("default", ...) is None  # which means something, and is not filled in
    if "$ref" in schema:
        referred = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        schema = {**referred, **{key: value for key, value in schema.items() if key != "$ref"}}
    if "anyOf" in schema:  # of the types here, only "this or null" makes one; absent says null as well
        (alternative,) = [each for each in schema["anyOf"] if each.get("type") != "null"]
        schema = {**alternative, **{key: value for key, value in schema.items() if key != "anyOf"}}
        return _structural(schema, definitions)
    plain = {key: value for key, value in schema.items() if key not in _DROPPED}
    if plain.get("default", ...) is None:
        del plain["default"]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in plain:  # OpenAPI 3.0 spells it as a number and a flag
            plain[bound], plain[exclusive] = plain[exclusive], True
    if "properties" in plain:
        plain["properties"] = {name: _structural(each, definitions) for name, each in plain["properties"].items()}
        if "required" not in plain:  # without a default the API server would not fill in the fields beneath
            # spelled out: rules are held against a default before those beneath it are filled in
            properties = plain["properties"].items()
            plain["default"] = {name: each["default"] for name, each in properties if "default" in each}
    if "items" in plain:
        plain["items"] = _structural(plain["items"], definitions)
    if may_be_absent:
        plain.pop("default", None)
    return plain
