"""Images that hold nothing of their own: a container of one sees this machine's programs and this checkout, read-only.

They stand in for the built images where a test is about pods and not about images: nothing is built, archived or
imported, so a change to the code costs no minutes. `runc_with_machine_files.py` adds the mounts, for containerd knows
no images of this kind.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import binaries
from node import Node
from pause_image import write_image
from runc_with_machine_files import VARIABLE

ROOT = Path(__file__).parents[2]
#: What each image runs where a pod names no command.
ENTRY_POINTS = {"operator": ["trimtab-operator"], "netmon": ["trimtab-netmon"], "trainer": ["trimtab", "--help"]}
#: As on every system whose /usr is merged.
_LINKS = ("bin", "sbin", "lib", "lib64")
_FOLDERS = {"tmp": 0o1777, "etc": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755, "workspace": 0o755}
_KERNELS = "/opt/trimtab/numba"


def give(node: Node, directory: Path, registry: str, version: str) -> None:
    """Let a node know the three images, under the names that the chart and the examples use."""
    mounts = _mounts()
    for part, entry_point in ENTRY_POINTS.items():
        name, archive = f"{registry}/{part}:{version}", directory / f"{part}.tar"
        _write(archive, name, entry_point, mounts)
        node.import_image(archive, name)


def _mounts() -> dict[str, str]:
    """Where each folder of this machine appears in a container."""
    own = [ROOT / each for each in ("proto", "netmon", "trainer", "operator", ".venv")]
    folders = [Path("/usr"), Path("/etc/alternatives"), Path("/etc/ld.so.cache"), Path(sys.base_prefix), *own]
    mounts = {str(each): str(each) for each in folders if each.exists()}
    return {**mounts, str(ROOT / "examples"): "/workspace/examples", str(_compiled_kernels()): _KERNELS}


def _compiled_kernels() -> Path:
    """A folder with the compiled kernels of this checkout, as the trainer's image has one."""
    kernels = ROOT / "trainer/trimtab/kernels"
    sources = b"".join(str(each).encode() + each.read_bytes() for each in sorted(kernels.rglob("*.py")))
    folder = binaries.cache() / f"kernels-{hashlib.sha256(sources).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    compile_them = "import torch; from trimtab.kernels.warm_up import warm_up; warm_up(torch.device('cpu'))"
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", compile_them], env=environ, check=True, timeout=600)
    return folder


def _write(archive: Path, name: str, entry_point: list[str], mounts: dict[str, str]) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        for folder, mode in _FOLDERS.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            files.addfile(entry)
        for link in _LINKS:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{link}"
            files.addfile(entry)
    environ = {
        "PATH": f"{ROOT}/.venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": _KERNELS,
        VARIABLE: json.dumps(mounts),
    }
    config = {
        "Entrypoint": entry_point,
        "User": "65532:65532",
        "WorkingDir": "/workspace",
        "Env": [f"{key}={value}" for key, value in environ.items()],
    }
    write_image(archive, name, layer.getvalue(), config)
