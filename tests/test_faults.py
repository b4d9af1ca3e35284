"""Each fault that the suite must find (`make faults`) is still a change of what the product says today."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAULTS = sorted((ROOT / "tests/faults").glob("*/*.patch"))


def why_not(patch: Path) -> str:
    """Why a patch does not apply; empty where it does."""
    command = ["git", "apply", "--check", str(patch)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False).stderr


def test_each_fault_applies():
    assert FAULTS
    assert [reason for reason in map(why_not, FAULTS) if reason] == []
