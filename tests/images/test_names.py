"""What the script that builds images makes of the names it is given, before it builds anything."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/images"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--registry=team"], "'team' is no name of a place with its host: give one like registry.example.com/team"),
        (["--registry=team/sub"], "'team/sub' is no name of a place with its host"),
        (["--registry=registry.example.com/team/"], "'registry.example.com/team/' is no name of a place"),
        (["--push"], "--push: nowhere to push to: give --registry=REGISTRY too"),
        (["--archive", "--registry=registry.example.com"], "--archive: an archive names its image localhost/trimtab/"),
        (["everything"], "'everything' is none of operator, netmon, trainer"),
    ],
)
def test_names_that_cannot_be_meant_are_refused_with_the_remedy(arguments, said):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("images: ")
    assert said in done.stderr
    assert done.stdout == ""
