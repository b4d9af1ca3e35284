"""The first process of a node: sees to what its namespaces hold, then waits for orphans. `node.Node` starts it.

It is process 1 of a process namespace, beside a mount and a network namespace: when it is killed, the kernel ends every
process of the node, and with the last of them go mounts, devices, routes and packet filters. What a node keeps in /run,
/var/lib and /var/log lies in a directory of ours meanwhile.

    python node_init.py DIRECTORY CONTAINERD_ROOT BRIDGE_ADDRESS
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def main(directory: Path, containerd_root: Path, bridge_address: str) -> None:
    """Prepare the node, write the file `ready`, and reap until killed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    # A kubelet offers pods mounts that spread; the peers are this namespace's own, not the machine's.
    do("mount", "--make-rshared", "/")
    for name in ("lib", "log"):
        (directory / name).mkdir()
        do("mount", "--bind", directory / name, f"/var/{name}")
    (Path("/var/lib/containerd")).mkdir()
    do("mount", "--bind", containerd_root, "/var/lib/containerd")
    do("mount", "-t", "tmpfs", "-o", "mode=755", "node", "/run")
    do("ip", "link", "set", "lo", "up")
    # Before the first pod comes: the DNS server listens at this address.
    do("ip", "link", "add", "cni0", "type", "bridge")
    do("ip", "addr", "add", bridge_address, "dev", "cni0")
    do("ip", "link", "set", "cni0", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    (directory / "ready").touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def do(*command: object) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(each) for each in command], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
