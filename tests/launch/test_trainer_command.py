"""What a job's command becomes on this machine."""

import sys
from pathlib import Path

import pytest
from trimtab.launch.processes.trainer_command import trainer_command
from trimtab_api.trainingjob import load_job_file


@pytest.mark.parametrize(
    ("program", "becomes"), [("python", sys.executable), ("python3", sys.executable), ("sh", "sh")]
)
def test_python_is_that_of_the_active_environment(program: str, becomes: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\nspec:\n  workers: 1\n"
        f"  template: {{spec: {{containers: [{{name: trainer, command: [{program}, x.py]}}]}}}}\n"
    )
    assert trainer_command(load_job_file(file), {}) == [becomes, "x.py"]
