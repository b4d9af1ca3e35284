"""A node that has stopped has left nothing on the machine: process, mount, device, packet filter, group or folder."""

import json
import os
import subprocess
from pathlib import Path

import pause_image
import psutil
import pytest
from cluster import Cluster
from programs import wait_until

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.full]

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "waits"},
    "spec": {"containers": [{"name": "main", "image": pause_image.NAME}]},
}


def machine():
    """What a node might leave on it, each thing as its kind and its name."""
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
    filters = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()
    groups = (top for top in os.scandir("/sys/fs/cgroup") if top.is_dir())
    return {
        *(("device", each["ifname"]) for each in links),
        *(("filter", line) for line in filters if not line.startswith(("#", ":"))),  # those lines tell time and counts
        ("forwarding", Path("/proc/sys/net/ipv4/ip_forward").read_text()),
        *(("mount", line) for line in Path("/proc/mounts").read_text().splitlines()),
        *(("group", os.path.join(top.name, folder)) for top in groups for folder in os.listdir(top.path)),
        *((place, name) for place in ("/run", "/var/lib", "/var/log", "/etc") for name in os.listdir(place)),
    }


def test_a_node_that_ran_a_pod_leaves_nothing(tmp_path):
    before = machine()
    with Cluster(tmp_path) as cluster:
        kubectl = cluster.control_plane.kubectl
        wait_until(lambda: kubectl("get", "serviceaccount", "default").returncode == 0, "there is an account for pods")
        assert kubectl("apply", "-f", "-", stdin=json.dumps(POD)).returncode == 0
        ready = kubectl("wait", "--for=condition=Ready", "--timeout=50s", "pod/waits")
        assert ready.returncode == 0, ready.stderr
        ours = {each.pid for each in psutil.process_iter() if is_of_the_node(each, cluster)}
        assert len(ours) >= 6  # the first process, containerd, kubelet, kube-proxy, DNS, the pod and who holds it
    assert not {pid for pid in ours if psutil.pid_exists(pid)}
    # What went meanwhile is no node's doing: an earlier test's namespaces may still have been going away at the start.
    wait_until(lambda: machine() <= before, lambda: f"of the node nothing is left but {sorted(machine() - before)}", 10)


def is_of_the_node(process, cluster):
    """Whether a process lives in the node's process namespace."""
    try:
        return os.readlink(f"/proc/{process.pid}/ns/pid") == os.readlink(f"/proc/{cluster.node.first_pid}/ns/pid")
    except OSError:
        return False
