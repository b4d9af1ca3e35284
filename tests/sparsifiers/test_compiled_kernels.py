"""The kernels that an image ships compiled are the same files whenever they are compiled."""

import os
import subprocess
import sys
from pathlib import Path

COMPILE_KERNELS = Path(__file__).parents[2] / "scripts/in-image/compile-kernels"


def test_two_processes_compile_the_same_files(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix}
    compilers = [subprocess.Popen([COMPILE_KERNELS, folder], env=environment) for folder in folders]
    assert [compiler.wait(timeout=240) for compiler in compilers] == [0, 0]

    one, other = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    )
    assert any(path.name.startswith("loops.fused_select") for path in one)
    assert one.keys() == other.keys()
    assert [str(path) for path in one if one[path] != other[path]] == []
