"""A pair of virtual network devices: this machine at one end, a node at the other. Nothing else is reached by it."""

from __future__ import annotations

import subprocess
from typing import Self

_MOST = 64


class Link:
    """Exists while the context is open. Its number, and so its addresses, are nobody else's on this machine."""

    def __init__(self) -> None:
        self.number = -1
        self._far_device = ""

    def __enter__(self) -> Self:
        for number in range(_MOST):
            near, far = f"trimtab-n{number}", f"trimtab-p{number}"
            made = _ip("link", "add", near, "type", "veth", "peer", "name", far, check=False)
            if made.returncode == 0:
                self.number, self._far_device = number, far
                _ip("addr", "add", f"{self.near}/30", "dev", near)
                _ip("link", "set", near, "up")
                return self
            if "File exists" not in made.stderr:
                raise RuntimeError(f"no virtual network device can be made: {made.stderr.strip()}")
        raise RuntimeError(f"{_MOST} nodes run on this machine already, or were left: see `ip link`")

    def __exit__(self, *_: object) -> None:
        # With a node that has ended it has gone by itself, a moment later.
        _ip("link", "delete", f"trimtab-n{self.number}", check=False)

    @property
    def near(self) -> str:
        """Address of this machine."""
        return f"10.78.{self.number}.1"

    @property
    def far(self) -> str:
        """Address of the node."""
        return f"10.78.{self.number}.2"

    def give_to(self, pid: int) -> None:
        """Move the far end into a process's network namespace, as its eth0."""
        _ip("link", "set", self._far_device, "netns", str(pid), "name", "eth0")
        inside = ("nsenter", f"--target={pid}", "--net", "--")
        for command in (("addr", "add", f"{self.far}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            subprocess.run([*inside, "ip", *command], check=True)


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)
