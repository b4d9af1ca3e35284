"""The images of operator and monitor, built for real; one that has not changed is not built again."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.images, pytest.mark.slow, pytest.mark.timeout(1300), pytest.mark.full]


#: Where a stranger's message does not end iperf3 with a segmentation fault.
LEAST_OF_IPERF3 = (3, 18)
#: Send a server a number where every client sends a string, and print how the server ended.
MALFORMED_MESSAGE = """
import socket, subprocess, time
with socket.create_server(("127.0.0.1", 0)) as free:
    here = free.getsockname()
argv = ["iperf3", "--server", "--one-off", "--bind", here[0], "--port", str(here[1])]
server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
client = socket.socket()
while client.connect_ex(here) != 0:
    assert server.poll() is None
    time.sleep(0.02)
message = b'{"tcp": true, "parallel": 1, "congestion": 1}'
client.sendall(b"a" * 36 + b"\\0" + len(message).to_bytes(4, "big") + message)
client.recv(64)
client.close()
print("ended with code", server.wait(30))
"""
#: What buildah fails with now and then, before the command begins: the kernel still holds a page of its own copy.
SEAL_IS_BUSY = "sealing memfd copy: Device or resource busy"


def buildah(*arguments):
    for _ in range(5):
        done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, timeout=120, check=False)
        if SEAL_IS_BUSY not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def images():
    """The names of the images, by target."""
    done = subprocess.run(
        [ROOT / "scripts/images", "operator", "netmon"], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return {name: f"localhost/trimtab/{name}:0.1.0" for name in ("operator", "netmon")}


@pytest.fixture
def container(images):
    """Run a command in an image as its user; returns what it printed."""
    made = []

    def run(name, *command):
        made.append(buildah("from", "--pull-never", images[name]))
        return buildah("run", "--isolation", "chroot", made[-1], *command)

    yield run
    for each in made:
        buildah("rm", each)


def size(image):
    return int(json.loads(buildah("images", "--json", image))[0]["size"].split()[0].split(".")[0])


@pytest.mark.parametrize("name", ["operator", "netmon"])
def test_an_image_is_small(images, name):
    labels = json.loads(buildah("inspect", "--type", "image", images[name]))["OCIv1"]["config"]["Labels"]
    base = labels["org.opencontainers.image.base.name"]
    assert 0 < size(images[name]) - size(base) < 200  # MB


@pytest.mark.parametrize("name", ["operator", "netmon"])
def test_all_python_in_it_is_compiled_ahead(container, name):
    said = container(name, "sh", "-c", f'python3 -v -c "import trimtab_{name}.main" 2>&1')
    compiled_now = [line for line in said.splitlines() if "bytecode is stale" in line or "code object from /" in line]
    assert re.search(rf"/trimtab_{name}/__pycache__/main\.cpython-3\d+\.pyc", said)
    assert compiled_now == []


@pytest.mark.parametrize("name", ["operator", "netmon"])
def test_nobody_in_it_is_root_or_may_write_to_its_programs(container, name):
    assert container(name, "id", "-u") == "65532"
    assert container(name, "find", "/opt/trimtab", "/usr", "-writable", "-not", "-type", "l") == ""


@pytest.mark.parametrize("name", ["operator", "netmon"])
def test_its_program_starts(container, name):
    assert container(name, f"trimtab-{name}", "--help").startswith(f"usage: trimtab-{name}")


@pytest.mark.parametrize("name", ["operator", "netmon"])
def test_all_python_in_it_is_of_the_lock(container, name):
    script = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    locked = set(re.findall(r"^[\w.-]+==[^ ]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    held = {each.lower().replace("_", "-") for each in container(name, "python3", "-c", script).split()}
    assert {each for each in held if not each.startswith("trimtab")} <= locked
    assert not any(each.startswith(("torch==", "numba==")) for each in held)


def test_the_monitor_has_what_it_measures_with(container):
    version = re.match(r"iperf (\d+)\.(\d+)", container("netmon", "iperf3", "--version"))
    assert version is not None
    assert tuple(map(int, version.groups())) >= LEAST_OF_IPERF3
    assert container("netmon", "which", "setpriv") == "/usr/bin/setpriv"


def test_a_malformed_message_does_not_end_the_images_iperf3(container):
    assert container("netmon", "python3", "-c", MALFORMED_MESSAGE) == "ended with code 0"


def test_a_build_removes_what_a_killed_one_left(images):
    left = buildah("from", "--pull-never", images["operator"])
    tag = next(
        name
        for name in buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()
        if re.search("/operator:[0-9a-f]{16}$", name)
    )
    buildah("rmi", tag)
    done = subprocess.run(
        [ROOT / "scripts/images", "operator"], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert left not in buildah("containers", "--format", "{{.ContainerName}}").split()
