"""Which plan the next session of a script trains by, whichever launcher started the script."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

_JOB = Path(os.environ.get("TRIMTAB_JOB", ""))
_UNDER_OUR_LAUNCHER = "TRIMTAB_MONITOR" in os.environ


def choose(plan: str) -> None:
    """Have the next session train by that plan, ``adaptive`` for none: as a job says it, or by the environment."""
    if not _UNDER_OUR_LAUNCHER:
        os.environ["TRIMTAB_PLAN"] = "" if plan == "adaptive" else plan
        return
    job = json.loads(_JOB.read_text())
    job["spec"]["communication"] |= {"policy": "Adaptive"} if plan == "adaptive" else {"policy": "Static", "plan": plan}
    with tempfile.NamedTemporaryFile("w", dir=_JOB.parent, prefix="job-", suffix=".json", delete=False) as file:
        json.dump(job, file)
    os.environ["TRIMTAB_JOB"] = file.name
