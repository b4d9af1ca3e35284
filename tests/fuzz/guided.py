"""Fuzz one parser, guided by what it covers: `python guided.py NAME SECONDS FOLDER`.

FOLDER keeps the inputs that cover something new, and the one that breaks the parser. Ends with another status than 0 if
one does.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "status")]


def main(name: str, seconds: int, folder: Path) -> None:
    """Run Atheris, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["trimtab", "trimtab_api", "trimtab_netmon", "trimtab_operator", "yaml"]):
        from all_targets import TARGETS
    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.corpus()):
        (corpus / f"seed-{number}").write_bytes(seed)
    flags = [
        f"-max_total_time={seconds}",
        "-timeout=10",
        "-rss_limit_mb=4096",
        "-max_len=65536",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, f"-artifact_prefix={folder}/", str(corpus)], target.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
