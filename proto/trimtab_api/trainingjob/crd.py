"""The CustomResourceDefinition of TrainingJob, made from its types."""

from __future__ import annotations

from typing import Any

from trimtab_api.trainingjob.types import API_VERSION, KIND, TrainingJob

#: What `kubectl get trainingjobs` shows: name, type, path.
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

#: What a structural schema may not hold, or need not.
_DROPPED = ("title", "additionalProperties", "$defs", "const")

Schema = dict[str, Any]


def crd() -> Schema:
    """The definition, as plain data: structural schema, defaults, printer columns, status subresource."""
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
                        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in _PRINTER_COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }


def _object_schema() -> Schema:
    """The schema of the whole object; metadata is left to the API server, the status to the operator."""
    generated = TrainingJob.model_json_schema(by_alias=True)
    root = _structural(generated, generated["$defs"])
    spec = root["properties"]["spec"]
    spec["properties"]["template"] = {
        "type": "object",
        "description": spec["properties"]["template"]["description"],
        "x-kubernetes-preserve-unknown-fields": True,
    }
    return {
        "type": "object",
        "description": root["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }


def _structural(schema: Schema, definitions: Schema) -> Schema:
    """A JSON schema as Kubernetes takes it: no references, no alternatives, a default for every optional object."""
    if "$ref" in schema:
        referred = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        schema = {**referred, **{key: value for key, value in schema.items() if key != "$ref"}}
    if "anyOf" in schema:  # of the types here, only "this or null" makes one; absent says null as well
        (alternative,) = [each for each in schema["anyOf"] if each.get("type") != "null"]
        schema = {**alternative, **{key: value for key, value in schema.items() if key != "anyOf"}}
        schema = _structural(schema, definitions)
    plain = {key: value for key, value in schema.items() if key not in _DROPPED}
    if plain.get("default", ...) is None:
        del plain["default"]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in plain:  # OpenAPI 3.0 spells an exclusive bound as a number and a flag
            plain[bound], plain[exclusive] = plain[exclusive], True
    if "properties" in plain:
        plain["properties"] = {name: _structural(each, definitions) for name, each in plain["properties"].items()}
        if "required" not in plain:  # without a default the API server would not fill in the fields beneath
            plain["default"] = {}
    if "items" in plain:
        plain["items"] = _structural(plain["items"], definitions)
    return plain
