"""The next version of Trimtab, as far as skew goes: the same code, whose TrainingJob has fields that this one lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import trimtab_api
from trimtab_operator.kube.resources import Object

#: Where the fields are added: after these lines of the types.
_FIELDS = {
    "class Spec(ApiModel):": 'next_mood: Literal["Quiet", "Loud"] = Field("Quiet", description="Another version\'s.")',
    "class Network(Ruled):": 'next_count: int = Field(7, ge=1, description="Another version\'s.")',
}


class NextVersion:
    """A copy of the contracts with `spec.nextMood` and `spec.network.nextCount`, put before the installed ones."""

    def __init__(self, directory: Path) -> None:
        package = Path(trimtab_api.__file__).parent
        shutil.copytree(package, directory / package.name)
        types = directory / package.name / "trainingjob/types.py"
        text = types.read_text()
        for head, field in _FIELDS.items():
            before, found, after = text.partition(head)
            assert found, head
            docstring, rest = after.lstrip("\n").split("\n", 1)
            text = f"{before}{head}\n{docstring}\n\n    {field}\n{rest}"
        types.write_text(text)
        #: Variables with which a program is the next version's.
        self.environment = {"PYTHONPATH": str(directory)}

    def definition(self) -> Object:
        """Its definition of TrainingJob."""
        program = "import json; from trimtab_api.trainingjob.crd import crd; print(json.dumps(crd()))"
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        definition: Object = json.loads(done.stdout)
        return definition
