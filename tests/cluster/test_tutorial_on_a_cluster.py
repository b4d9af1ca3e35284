"""The Kubernetes tutorial on a real API server: it takes the page's manifests; the page's commands name what exists.

`tests/e2e/test_the_example_as_it_stands.py` trains the same file on pods.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from doc_pages import ROOT
from tutorial_page import commands

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]
NAME = "first-job-on-kubernetes"
LINES = [line for text in commands(NAME) for line in text.splitlines()]


def test_the_api_server_takes_each_manifest_that_the_page_applies(namespace):
    applied = [shlex.split(line)[1:] for line in LINES if line.startswith("kubectl apply")]
    assert applied
    for arguments in applied:
        arguments[-1] = str(ROOT / arguments[-1])
        taken = namespace.control_plane.kubectl(*arguments, "--dry-run=server", "-n", namespace.namespace)
        assert (taken.returncode, taken.stderr) == (0, "")
        assert "digits created" in taken.stdout


def test_the_other_kubectl_commands_of_the_page_work_once_it_is_applied(namespace):
    kubectl, here = namespace.control_plane.kubectl, ("-n", namespace.namespace)
    assert kubectl("apply", "-f", str(ROOT / "examples/digits.yaml"), *here).returncode == 0
    for line in LINES:
        if line.startswith("kubectl") and " apply " not in line:
            done = kubectl(*[str(ROOT / word) if ".yaml" in word else word for word in shlex.split(line)[1:]], *here)
            assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "No resources" in kubectl("get", "tj", *here).stderr


def test_the_page_shows_columns_of_the_definition(namespace):
    text = (ROOT / f"docs/tutorials/{NAME}.md").read_text()
    (columns,) = re.findall(r"^NAME +STATE.*$", text, re.MULTILINE)
    got = namespace.control_plane.kubectl("get", "crd", "trainingjobs.trimtab.dev", "-o", "json")
    (version,) = [each for each in json.loads(got.stdout)["spec"]["versions"] if each["storage"]]
    names = [each["name"] for each in version["additionalPrinterColumns"] if not each.get("priority")]
    assert columns.split()[1:] == [name.upper() for name in names]
