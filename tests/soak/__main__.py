"""`python tests/soak MINUTES SEED [PLAN]`: trains through faults, and prints what happened. Needs root."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.soak_run import soak
from trimtab_netmon.emulate import available


def main(arguments: list[str]) -> int:
    if trouble := available():
        print(f"soak: {trouble}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="trimtab-soak-")) / "soak"
    report = soak(folder, int(arguments[1]), float(arguments[0]), plan=arguments[2] if arguments[2:] else None)
    print("\n".join([*report.lines(), f"its files: {folder}"]))
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
