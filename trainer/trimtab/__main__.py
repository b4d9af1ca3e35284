"""The `trimtab` command as a process (also ``python -m trimtab``): Ctrl-C finds it ready before it imports the rest."""

from __future__ import annotations

import sys

from trimtab_api.process_settings import settle_process

from trimtab.launch.processes import interrupts


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    interrupts.end_when_told()
    settle_process()
    from trimtab.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
