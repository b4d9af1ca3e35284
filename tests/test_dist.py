"""What `make dist` builds installs into an environment of its own, beside a torch that is there, and trains."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
MEMBERS = ("proto", "netmon", "trainer", "operator")
SCRIPT = ROOT / "tests/joining/adopted.py"


def run(*argv, **options):
    ended = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=200, **options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dist")
    for member in MEMBERS:
        build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
        run(sys.executable, "-c", build, folder, cwd=ROOT / member)
    return sorted(folder.iterdir())


def test_a_wheel_says_what_it_is(wheels):
    assert len(wheels) == len(MEMBERS)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            metadata = message_from_string(archive.read(name).decode())
            (terms,) = (each for each in archive.namelist() if each.endswith("/licenses/LICENSE"))
            assert archive.read(terms) == (ROOT / "LICENSE").read_bytes()
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata["Description-Content-Type"] == "text/markdown"
        assert len(metadata.get_all("Classifier")) >= 5
        needed = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
        assert not [each for each in needed if each.startswith(("torchvision", "scikit-learn", "matplotlib"))]


def test_the_wheels_train_in_an_environment_of_their_own(wheels, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv/lib").glob("python3.*/site-packages")
    run(ROOT / ".tools/bin/uv", "pip", "install", "--offline", "--no-deps", "--python", python, *wheels)
    # What the wheels require, the user's torch among it; a path in a .pth file is not searched for further such files.
    (site / "installed_before.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    load = "import sys, trimtab, trimtab_netmon, trimtab.session.attach; from trimtab.control.search import search"
    assert (
        run(python, "-c", f"{load}; search.preload(); print('matplotlib' in sys.modules)", cwd=tmp_path).strip()
        == "False"
    )
    found = run(python, "-c", "import trimtab, trimtab_api, trimtab_netmon; print(trimtab.__file__)", cwd=tmp_path)
    assert found.strip() == str(site / "trimtab/__init__.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    argv = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT, "plan=0.05/all-gather"]
    output = run(*argv, cwd=tmp_path, env=environment)
    assert output.count(" ends with 0.05/all-gather and ") == 2
    assert (tmp_path / "runs/adopted/result.json").exists()
    assert "adopted" in run(tmp_path / "venv/bin/trimtab", "report", "runs/adopted", cwd=tmp_path)
