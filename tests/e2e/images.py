"""The images of operator, monitor and trainer, as a cluster under test knows them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from node import Node

ROOT = Path(__file__).parents[2]
NAMES = ("operator", "netmon", "trainer")
#: What the chart and the examples call them.
REGISTRY = "localhost/trimtab"
VERSION = str(yaml.safe_load((ROOT / "charts/trimtab/Chart.yaml").read_text())["appVersion"])
#: Where a node remembers what the images it holds were made of.
_KEPT = "trimtab.test"


@dataclass(frozen=True)
class Images:
    """Where a cluster finds them."""

    registry: str = REGISTRY
    tag: str = VERSION

    def name(self, part: str) -> str:
        """The image of operator, netmon or trainer."""
        return f"{self.registry}/{part}:{self.tag}"

    @property
    def are_as_written(self) -> bool:
        """Whether they are where the examples say."""
        return self == Images()

    def example(self, path: str) -> dict[str, Any]:
        """The TrainingJob of a file in examples/, its trainer's image where the cluster finds it."""
        job: dict[str, Any] = yaml.safe_load((ROOT / "examples" / path).read_text())
        (trainer,) = job["spec"]["template"]["spec"]["containers"]
        if not self.are_as_written:
            trainer["image"] = self.name("trainer")
        return job

    def settings(self) -> list[str]:
        """Flags by which helm is told."""
        tags = [f"--set-string={part}.image.tag={self.tag}" for part in ("operator", "netmon", "test")]
        return [f"--set=registry={self.registry}", *tags]


def give(node: Node, *names: str) -> None:
    """Build images, if what they are made of has changed, and import those that the node does not hold yet."""
    command = [ROOT / "scripts/images", "--archive", *names]
    built = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    print(built.stderr, file=sys.stderr)
    if built.returncode:  # each test that needs a cluster ends with this
        last = "\n".join(built.stderr.splitlines()[-15:])
        raise RuntimeError(f"scripts/images --archive {' '.join(names)} ended with {built.returncode}:\n{last}")
    for line in built.stdout.split():
        archive = Path(line)
        name, inputs = archive.stem.rsplit("-", 1)
        image, kept = Images().name(name), f"{_KEPT}/{name}:{inputs}"
        if kept not in node.images():
            node.forget_images(lambda other, name=name: other.startswith(f"{_KEPT}/{name}:"))
            node.import_image(archive, image)
            node.name_image(image, kept)
        node.name_image(kept, image)
