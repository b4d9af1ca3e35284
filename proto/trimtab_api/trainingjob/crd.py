"""The CustomResourceDefinition of TrainingJob, made from its types."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from trimtab_api.trainingjob import kubernetes_fields as known
from trimtab_api.trainingjob.rules import MUTABLE, RULES, immutable
from trimtab_api.trainingjob.status import Status
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

_NAME: Schema = {"type": "string", "maxLength": 253}


def _list_of(items: Schema, most: int, **more: Any) -> Schema:
    return {"type": "array", "maxItems": most, "items": items, **more}


#: Anything at all, null included, which other tools write for a field that they leave empty.
_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


def _open(fields: Set[str], **looked_at: Schema) -> Schema:
    """An object of Kubernetes' own, of which only some fields are looked at here.

    The others are named all the same: to the API server two objects are equal if one has an unnamed field where the
    other has another, and a rule that compares them would let a field be swapped for another.
    """
    properties = {name: looked_at.get(name, _ANYTHING) for name in (*looked_at, *sorted(fields - set(looked_at)))}
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": properties}


_TEXTS: Schema = {"type": "object", "nullable": True, "additionalProperties": {"type": "string", "nullable": True}}


def _objects(most: int) -> Schema:
    """A list of Kubernetes' own objects, whatever they hold."""
    item = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return _list_of(item, most, nullable=True)


_VARIABLE = _open(known.VARIABLE, name=_NAME, value={"type": "string"}) | {"required": ["name"]}
_CONTAINER = _open(
    known.CONTAINER,
    name=_NAME,
    image={"type": "string", "minLength": 1, "maxLength": 1024},
    command=_list_of({"type": "string"}, 1024, minItems=1),
    args=_list_of({"type": "string"}, 1024, minItems=1),
    env=_list_of(_VARIABLE, 256),
    workingDir={"type": "string"},
    ports=_objects(256),
    volumeMounts=_objects(256),
) | {"required": ["name"]}
#: A pod template as far as the rules look at it. Bounds are there because the API server bounds what a rule may cost.
_TEMPLATE = _open(
    known.POD_TEMPLATE,
    metadata=_open(known.METADATA, labels=_TEXTS, annotations=_TEXTS),
    spec=_open(
        known.POD,
        containers=_list_of(_CONTAINER, 16, minItems=1),
        initContainers=_list_of(_open(known.CONTAINER, name=_NAME) | {"required": ["name"]}, 16),
        volumes=_list_of(_open(known.VOLUME, name=_NAME) | {"required": ["name"]}, 64),
        restartPolicy={"type": "string", "maxLength": 16},
        hostname=_NAME,
        subdomain=_NAME,
    )
    | {"required": ["containers"]},
) | {"required": ["spec"]}


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
    """The schema of the whole object; metadata is left to the API server."""
    generated = TrainingJob.model_json_schema(by_alias=True)
    root = _structural(generated, generated["$defs"])
    spec = root["properties"]["spec"]
    spec["properties"]["template"] = {
        "description": spec["properties"]["template"]["description"],
        **_TEMPLATE,
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
    for rule in (*RULES, *(immutable(field) for field in spec["properties"] if field not in MUTABLE)):
        said = {"rule": rule.holds, "message": rule.message, "fieldPath": rule.field}
        rules = _at(schema, rule.at).setdefault("x-kubernetes-validations", [])
        rules.append({key: value for key, value in said.items() if value})
    return schema


def _status_schema() -> Schema:
    """The schema of the status: without defaults, for the operator alone says what it holds."""
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
    """The schema at a dotted path; ``[]`` after a name goes on to the items of that list."""
    for step in filter(None, path.split(".")):
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


def _structural(schema: Schema, definitions: Schema) -> Schema:
    """A JSON schema as Kubernetes takes it: no references, no alternatives, a default for every object that has one."""
    may_be_absent = schema.get("default", ...) is None  # which means something, and is not filled in
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
        # OpenAPI 3.0 spells an exclusive bound as a number and a flag; of an alternative it is spelled so by now.
        if plain.get(exclusive, True) is not True:
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
