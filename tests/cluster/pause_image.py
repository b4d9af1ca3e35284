"""The image that holds a pod's namespaces open: one program, that waits."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

#: Of a registry that does not exist, so that nobody looks for it elsewhere.
NAME = "trimtab.test/pause:1"

_SOURCE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(archive: Path) -> None:
    """Write the image as `ctr images import` takes it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        _add(files, "pause", _compile(), mode=0o755)
    write_image(archive, NAME, layer.getvalue(), {"Entrypoint": ["/pause"]})


def write_image(archive: Path, name: str, layer: bytes, config: dict[str, Any]) -> None:
    """Write an image of one layer as `ctr images import` takes it; ``config`` is what its containers run, and how."""
    configuration = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as files:
        _add(files, "layer.tar", layer)
        _add(files, "config.json", json.dumps(configuration).encode())
        _add(files, "manifest.json", json.dumps(manifest).encode())


def _compile() -> bytes:
    """The program, in need of no library."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "pause")
        command = ["gcc", "-static", "-Os", "-s", "-x", "c", "-o", program, "-"]
        subprocess.run(command, input=_SOURCE, text=True, check=True)
        return program.read_bytes()


def _add(files: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    files.addfile(entry, io.BytesIO(content))
