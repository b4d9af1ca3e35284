"""A real node: containerd, kubelet, kube-proxy and a DNS server, in namespaces of their own beside the control plane.

The node's processes live in a process, a mount and a network namespace that end with their first process
(`node_init.py`), so stopping leaves nothing behind but control groups, which are then removed. What is kept on purpose
is containerd's store in the user's cache, because importing a trainer's image takes a minute and more.

The node reaches the machine, and nothing beyond it, by one pair of virtual devices: there is no default route, so an
image that was not imported cannot be pulled. What a pod receives is limited to `POD_BITS_PER_SECOND`.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

import binaries
import cgroups
import pause_image
import psutil
import yaml
from control_plane import NODE_NAME, ControlPlane
from kit import debian_programs
from link import Link
from programs import Program, wait_until

#: Where pods live; inside the node's network namespace, so that it is in nobody's way.
_POD_SUBNET = "10.79.0.0/16"
_BRIDGE_ADDRESS = "10.79.0.1"
#: What any pod receives at most, from its start; `Node.limit` changes it for one pod.
POD_BITS_PER_SECOND = 1_000_000_000
#: Bits that may come at once: some packets as large as the kernel makes them before it cuts them for the wire.
_BURST_BITS = 2_097_152
#: Of a slower limit, in seconds of what it lets through.
_BURST_SECONDS = 0.01
_SOCKET = "/run/containerd/containerd.sock"
#: containerd's name for what Kubernetes runs.
_KUBERNETES = ("--namespace", "k8s.io")


def why_missing() -> str | None:
    """None where a node can run here; otherwise what is missing and what to do."""
    if os.geteuid() != 0:
        return "a node needs root: namespaces, cgroups, containerd"
    if why := cgroups.why_missing():
        return why
    if why := binaries.why_missing((*binaries.CONTROL_PLANE, *binaries.NODE)):
        return why
    return debian_programs.why_missing("node")


class Node:
    """One node of a control plane, while the context is open. Its files, logs among them, are in ``directory``."""

    def __init__(self, directory: Path, control_plane: ControlPlane, link: Link) -> None:
        self._directory = directory
        self._control_plane = control_plane
        self._link = link
        self._binaries = binaries.obtain(binaries.NODE)
        self._cgroup = f"trimtab-node-{link.number}"
        self._stack = ExitStack()
        self._first: psutil.Process | None = None
        self.programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            for name, program in self.programs.items():
                error.add_note(f"{name}: {program.last_lines()}")
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def first_pid(self) -> int:
        """Id of the process that holds its namespaces."""
        assert self._first is not None
        return self._first.pid

    def run(self, *command: object, timeout: float = 60.0) -> str:
        """Run a command inside the node; returns what it printed. Raises RuntimeError with its complaint."""
        done = subprocess.run(
            self._inside(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    @property
    def address(self) -> str:
        """Where this machine reaches it."""
        return self._link.far

    def on_network(self, *command: object) -> list[str]:
        """The command line that runs a command where pods are reached, with this machine's files and processes."""
        return ["nsenter", f"--target={self.first_pid}", "--net", "--", *map(str, command)]

    def limit(self, pod_address: str, bits_per_second: int) -> None:
        """Limit what the pod with that address receives from now on. Raises LookupError where there is no such pod."""
        # A larger burst would be a good part of all that a bandwidth test sends in its fraction of a second.
        burst_bits = min(_BURST_BITS, bits_per_second * _BURST_SECONDS)
        shape = ("tbf", "rate", f"{bits_per_second}bit", "burst", f"{burst_bits / 8:.0f}", "latency", "25ms")
        self.run("tc", "qdisc", "replace", "dev", self._device(pod_address), "root", *shape)

    def images(self) -> set[str]:
        """Names of the images it has."""
        return set(self._ctr("images", "list", "--quiet").split())

    def import_image(self, archive: Path, name: str) -> None:
        """Take in an image from an archive that names it."""
        self._ctr("images", "import", archive, timeout=600.0)
        if name not in self.images():
            raise RuntimeError(f"{archive} holds no image {name}, but: {', '.join(sorted(self.images()))}")

    def name_image(self, image: str, name: str) -> None:
        """Let an image be known by another name too."""
        self._ctr("images", "tag", "--force", image, name)

    def forget_images(self, unwanted: Callable[[str], bool]) -> None:
        """Remove images by name; what no other name needs goes from the disk."""
        for image in sorted(filter(unwanted, self.images())):
            self._ctr("images", "remove", "--sync", image, timeout=300.0)

    def _start(self) -> None:
        cgroups.make(self._cgroup)
        self._stack.callback(cgroups.remove, self._cgroup)
        store = binaries.cache() / "node" / "containerd"
        store.mkdir(parents=True, exist_ok=True)
        lock = self._stack.enter_context((store.parent / "lock").open("w"))
        wait_until(lambda: _take(lock), f"another node ends, whose containerd uses {store}", 1800, interval=0.5)
        self._start_first_process(store)
        self._forget_containers_of_earlier_nodes()
        self._start_containerd(with_kubernetes=True)
        self._start_kubelet()
        self._start_proxy()
        self._start_dns()
        wait_until(self._is_ready, "the node is ready")

    def _start_first_process(self, store: Path) -> None:
        script = Path(__file__).parent / "node_init.py"
        spaces = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
        arguments = (self._directory, store, f"{_BRIDGE_ADDRESS}/{_POD_SUBNET.split('/')[1]}")
        program = Program(["unshare", *spaces, sys.executable, script, *arguments], self._directory / "init.log")
        self._stack.callback(self._end, program)

        def is_prepared() -> bool:
            if not program.is_running:
                raise RuntimeError(f"the node's first process ended: {program.last_lines()}")
            return (self._directory / "ready").exists()

        wait_until(is_prepared, "the node's namespaces are prepared")
        (self._first,) = psutil.Process(program.pid).children()
        self._link.give_to(self.first_pid)

    def _end(self, program: Program) -> None:
        """End the first process, and so all: `unshare` ends when the kernel has ended every process of the node."""
        if self._first is not None:
            self._first.kill()
            program.process.wait(timeout=60)
        else:
            program.kill()
        for each in self.programs.values():
            each.process.wait(timeout=10)

    def _forget_containers_of_earlier_nodes(self) -> None:
        """Their processes ended with them; containerd would tell a new kubelet of pods that it does not know."""
        self._start_containerd(with_kubernetes=False)
        for container in self._ctr("containers", "list", "--quiet").split():
            self._ctr("containers", "delete", container)
        if pause_image.NAME not in self.images():
            archive = self._directory / "pause.tar"
            pause_image.write(archive)
            self.import_image(archive, pause_image.NAME)
        self._stop("containerd")

    def _start_containerd(self, with_kubernetes: bool) -> None:
        program = str(Path(__file__).parent / "runc_with_machine_files.py")
        runc = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": False, "BinaryName": program}}
        plugin = {
            "sandbox_image": pause_image.NAME,
            # Where root lacks CAP_SYS_RESOURCE nobody may be made less likely to be killed for memory.
            "restrict_oom_score_adj": True,
            "containerd": {"snapshotter": "overlayfs", "runtimes": {"runc": runc}},
            "cni": {"bin_dir": str(debian_programs.find_cni_plugins()), "conf_dir": str(self._directory / "cni")},
        }
        settings = {
            "version": 2,
            "disabled_plugins": [] if with_kubernetes else ["io.containerd.grpc.v1.cri"],
            "plugins": {"io.containerd.grpc.v1.cri": plugin} if with_kubernetes else {},
        }
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": _POD_SUBNET}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
                {"type": "bandwidth", "ingressRate": POD_BITS_PER_SECOND, "ingressBurst": _BURST_BITS},
            ],
        }
        configuration = self._directory / "containerd.toml"
        configuration.write_text(toml(settings))
        (self._directory / "cni").mkdir(exist_ok=True)
        (self._directory / "cni/pods.conflist").write_text(json.dumps(network))
        self._run_inside("containerd", "containerd", f"--config={configuration}")

        def answers() -> bool:
            self._check("containerd")
            try:
                return bool(self._ctr("version"))
            except RuntimeError:
                return False

        wait_until(answers, "containerd answers")

    def _start_kubelet(self) -> None:
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._link.far,
            # Only this machine reaches it.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "clusterDNS": [_BRIDGE_ADDRESS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "failSwapOn": False,
            "resolvConf": "",
            # However full the machine's disk is, nobody's image is to go.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
        }
        self._run_inside(
            "kubelet",
            self._binaries["kubelet"],
            f"--config={self._write('kubelet.yaml', configuration)}",
            f"--kubeconfig={self._control_plane.kubeconfig_of('node')}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={self._link.far}",
        )

    def _start_proxy(self) -> None:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "hostnameOverride": NODE_NAME,
            "clusterCIDR": _POD_SUBNET,
            "clientConnection": {"kubeconfig": str(self._control_plane.kubeconfig_of("proxy"))},
            "conntrack": {"maxPerCore": 0, "min": 0},  # the machine's to set, not a namespace's
        }
        self._run_inside(
            "kube-proxy", self._binaries["kube-proxy"], f"--config={self._write('proxy.yaml', configuration)}"
        )

    def _start_dns(self) -> None:
        configuration = self._directory / "Corefile"
        configuration.write_text(
            f"""
            cluster.local in-addr.arpa {{
                bind {_BRIDGE_ADDRESS}
                errors
                kubernetes {{
                    kubeconfig {self._control_plane.kubeconfig}
                    ttl 5
                }}
            }}
            . {{
                bind {_BRIDGE_ADDRESS}
                template ANY ANY {{
                    rcode NXDOMAIN
                }}
            }}
            """
        )
        self._run_inside("coredns", self._binaries["coredns"], "-conf", configuration)

    def _is_ready(self) -> bool:
        for name in self.programs:
            self._check(name)
        listening = self.run("ss", "--listening", "--udp", "--numeric", "--no-header")
        if f"{_BRIDGE_ADDRESS}:53" not in listening:
            return False
        path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return self._control_plane.kubectl("get", "node", NODE_NAME, "-o", path).stdout == "True"

    def _device(self, pod_address: str) -> str:
        """The node's end of a pod's devices, as the network plugins have written it down."""
        for file in (self._directory / "lib/cni/results").iterdir():
            result = json.loads(file.read_text()).get("result", {})
            if any(each["address"].split("/")[0] == pod_address for each in result.get("ips", ())):
                return next(each["name"] for each in result["interfaces"] if each["name"].startswith("veth"))
        raise LookupError(f"no pod has the address {pod_address}")

    def _check(self, name: str) -> None:
        if not self.programs[name].is_running:
            raise RuntimeError(f"{name} ended: {self.programs[name].last_lines()}")

    def _ctr(self, *arguments: object, timeout: float = 60.0) -> str:
        return self.run("ctr", "--address", _SOCKET, *_KUBERNETES, *arguments, timeout=timeout)

    def _write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Block YAML: kubelet and kube-proxy take no other."""
        path = self._directory / name
        path.write_text(yaml.safe_dump(dict(content), default_flow_style=False))
        return path

    def _run_inside(self, name: str, *command: object) -> None:
        self.programs[name] = Program(self._inside(command), self._directory / f"{name}.log")

    def _stop(self, name: str) -> None:
        """End a program of the node, and wait for it."""
        program = self.programs.pop(name)
        (inside,) = psutil.Process(program.pid).children()
        inside.terminate()
        program.process.wait(timeout=30)

    def _inside(self, command: tuple[object, ...]) -> list[str]:
        enter = ("nsenter", f"--target={self.first_pid}", "--mount", "--net", "--pid", "--")
        return [*enter, *(str(each) for each in command)]


def toml(settings: Mapping[str, Any]) -> str:
    """The little TOML that containerd's settings are made of."""

    def lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
        own = [f"{key} = {value(each)}" for key, each in table.items() if not isinstance(each, Mapping)]
        head = ["[" + ".".join(f'"{part}"' for part in path) + "]"] if path and own else []
        inner = [line for key, each in table.items() if isinstance(each, Mapping) for line in lines(each, (*path, key))]
        return [*head, *own, *inner]

    def value(each: object) -> str:
        if isinstance(each, bool):
            return str(each).lower()
        if isinstance(each, list):
            return "[" + ", ".join(map(value, each)) + "]"
        return f'"{each}"' if isinstance(each, str) else str(each)

    return "\n".join(lines(settings, ())) + "\n"


def _take(lock: IO[str]) -> bool:
    """Take a lock that ends with the process, if nobody has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
