"""Whatever a tenant may write into a TrainingJob has a type and a bound, and the definition fits where it is kept."""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from trimtab_api.trainingjob.crd import crd

DEFINITION = crd()
SPEC = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from schemas(each, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from schemas(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("array", {"maxItems"}),
        ("string", {"maxLength", "enum", "format"}),
        ("object", {"properties", "maxProperties"}),
        (None, {"maxLength"}),
    ],
)
def test_every_value_of_a_kind_is_bounded(kind, bounds):
    found = [(path, each) for path, each in schemas(SPEC, "spec") if each.get("type") == kind]
    assert found
    assert [path for path, each in found if not bounds & set(each)] == []
    assert [path for path, each in found if each.get("x-kubernetes-preserve-unknown-fields")] == []


def test_the_definition_fits_where_it_is_kept():
    text = json.dumps(DEFINITION, separators=(",", ":")).encode()
    assert len(text) < 128 * 1024, "kubectl apply keeps it in an annotation, of which an object may have 256 KiB"
    assert len(base64.b64encode(gzip.compress(text))) < 64 * 1024, "helm keeps it in a Secret, of at most 1 MB"
