"""The `trimtab` command as a process (also ``python -m trimtab``): Ctrl-C finds it ready before it imports the rest."""

from __future__ import annotations

import sys

from trimtab.launch.processes import interrupts


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    interrupts.end_when_told()
    from trimtab_api.cli import reset_process_state

    reset_process_state()
    from trimtab.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
