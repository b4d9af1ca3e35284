"""Every program that tests call by its name, and Debian's package of it. What is missing is installed before any test.

A test that first looked for a program which a later one installs passes on machines that ran the tests before, and
nowhere else. So the packages of all kinds of test that were selected are there before the first of them runs, and a
program that stands in no list here may not be called at all (`refuse_unlisted_programs`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_LOCK = Path(tempfile.gettempdir()) / f"trimtab-tests-install-{os.getuid()}.lock"
_INSTALL = Path(__file__).parents[2] / "scripts/debian-packages"

#: What `make setup` installs, or every Debian system has.
_EVERYWHERE = {
    "apt-get": "apt",
    "bash": "bash",
    "cc": "gcc",
    "dpkg-deb": "dpkg",
    "false": "coreutils",
    "git": "git",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "mount": "mount",
    "nsenter": "util-linux",
    "ping": "iputils-ping",
    "setpriv": "util-linux",
    "sh": "dash",
    "sleep": "coreutils",
    "ss": "iproute2",
    "tc": "iproute2",
    "true": "coreutils",
    "umount": "mount",
    "unshare": "util-linux",
}
#: What a kind of test needs beside it. That of an image, buildah, is installed by `scripts/images`, where no docker is.
_OF_KIND = {
    "node": {
        "conntrack": "conntrack",
        "containerd": "containerd",
        "ctr": "containerd",
        "gcc": "gcc",
        "iptables-save": "iptables",
        "runc": "runc",
    },
    "namespaces": {"iptables": "iptables"},
    "browser": {"chromium": "chromium"},
    "images": {"buildah": "buildah"},
    "mpi": {"mpirun": "openmpi-bin"},
    "olderkernel": {"busybox": "busybox", "linux.uml": "user-mode-linux"},
}
#: Programs that are no Debian package's here: a user's own, and called only where they are.
_OWN = {"docker", "go"}
#: Where a package puts the plugins of a pod's network, which are on no PATH.
CNI_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PACKAGE = "containernetworking-plugins"


def missing_packages(kind: str) -> list[str]:
    """Packages that a kind of test needs and that are not here."""
    wanted = {**_EVERYWHERE, **_OF_KIND.get(kind, {})}
    missing = {package for program, package in wanted.items() if shutil.which(program) is None}
    if kind == "node" and find_cni_plugins() is None:
        missing.add(_CNI_PACKAGE)
    return sorted(missing)


def why_missing(kind: str) -> str | None:
    """None where all that a kind of test needs is here, or can be installed; otherwise what to install."""
    missing = missing_packages(kind)
    return None if not missing or can_install() else f"install what brings {', '.join(missing)}"


def can_install() -> bool:
    """Whether missing packages are installed without asking."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(kinds: Iterable[str]) -> None:
    """Install what kinds of test lack. Raises CalledProcessError where that fails."""
    with _LOCK.open("w") as lock:  # several processes run tests at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = sorted({package for kind in kinds for package in missing_packages(kind)})
        if missing and can_install():
            subprocess.run([_INSTALL, *missing], check=True)


def find_cni_plugins() -> Path | None:
    """The folder of the plugins of a pod's network."""
    return next((step_tag for step_tag in CNI_PLUGINS if (step_tag / "bridge").is_file()), None)


def refuse_unlisted_programs() -> None:
    """From now on, calling a program by a name that stands in no list raises RuntimeError, for good."""
    listed = {*_EVERYWHERE, *(program for each in _OF_KIND.values() for program in each), *_OWN}

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            for program in called([os.fspath(arguments[0]), *map(os.fspath, arguments[1][1:])]):  # type: ignore
                if program not in listed:
                    raise RuntimeError(f"a test calls {program!r}: add it, with Debian's package of it, to {__file__}")

    sys.addaudithook(audit)


def called(argv: Sequence[str]) -> list[str]:
    """The programs that a command calls by name: its own, and the one that nsenter or unshare turns into."""
    program = argv[0]
    named = [] if os.sep in program else [program]
    if program in ("nsenter", "unshare") and "--" in argv:
        named += called(argv[argv.index("--") + 1 :])
    return named
