"""Runs snippets of how-to pages on this rank, one after the other, and writes down what became of each.

``python how_to_runner.py SNIPPETS.json``: a list of objects with ``name``, ``code``, ``folder`` and ``environment``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from pathlib import Path

import torch.distributed as dist
from trimtab.session.session import Session

_sessions: list[Session] = []


def main() -> None:
    close = Session.close

    def noting(session: Session) -> None:
        _sessions.append(session)
        close(session)

    Session.close = noting  # type: ignore[method-assign,assignment]
    rank, base = os.environ["RANK"], dict(os.environ)
    for snippet in json.loads(Path(sys.argv[1]).read_text()):
        _sessions.clear()
        os.environ.clear()
        os.environ.update(base, **snippet["environment"])
        os.chdir(snippet["folder"])
        error = ""
        try:
            exec(compile(snippet["code"], snippet["name"], "exec"), {"__name__": "__main__"})
        except BaseException:
            error = traceback.format_exc()
        weights = [float(p.double().sum()) for each in _sessions for p in each._training.model.parameters()]  # noqa: SLF001
        told = {"error": error, "weights": weights, "steps": [int(each.steps) for each in _sessions]}
        Path(f"{snippet['name']}.rank-{rank}.json").write_text(json.dumps(told))
        if dist.is_initialized():
            dist.destroy_process_group()
        if error:
            break
        gc.collect()


if __name__ == "__main__":
    main()
