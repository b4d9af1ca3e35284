"""What comes from the contracts is what the contracts say now."""

import subprocess
import sys
from pathlib import Path

import pytest
from trimtab_api.trainingjob.crd import crd

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, ROOT / "scripts/generate", out], check=True)
    return out


def test_generated_files_are_current(generated):
    files = [path.relative_to(generated) for path in sorted(generated.rglob("*")) if path.is_file()]
    assert len(files) >= 10
    outdated = [str(each) for each in files if not _same(generated / each, ROOT / each)]
    assert not outdated, "run `make generate` and commit"


def _same(fresh, committed):
    return committed.exists() and fresh.read_text() == committed.read_text()


def schemas(schema, ours=False):
    """A schema and all those in it; only the fields of our own, without what is Kubernetes', if so asked."""
    yield schema
    for name, each in schema.get("properties", {}).items():
        if not (ours and name == "template"):
            yield from schemas(each, ours)
    if "items" in schema and not ours:
        yield from schemas(schema["items"])


def test_the_crd_schema_is_structural():
    (version,) = crd()["spec"]["versions"]
    for schema in schemas(version["schema"]["openAPIV3Schema"]):
        assert "type" in schema or schema["x-kubernetes-int-or-string"]
        assert not {"$ref", "anyOf", "$defs", "title", "const"} & schema.keys()


def test_every_field_of_the_spec_says_what_it_means():
    (version,) = crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    ours = [each for each in schemas(spec, ours=True) if each is not spec]
    assert len(ours) > 30
    assert all("description" in each for each in ours)
