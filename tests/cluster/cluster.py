"""A whole cluster on this machine: a control plane, and one node that runs pods for real."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from control_plane import ControlPlane
from link import Link
from node import Node


class Cluster:
    """Runs while the context is open; its files are in ``directory``."""

    control_plane: ControlPlane
    node: Node

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            link = stack.enter_context(Link())
            self.control_plane = stack.enter_context(ControlPlane(self._make("control-plane"), link.near))
            self.control_plane.start_scheduler()
            self.node = stack.enter_context(Node(self._make("node"), self.control_plane, link))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir()
        return directory
