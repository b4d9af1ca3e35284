"""A real control plane: etcd, kube-apiserver and kube-controller-manager, without a node unless one joins it.

Without a node pods are made but nothing runs them; tests say what becomes of them by writing their status, as a kubelet
would.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import binaries
import operator_role
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from programs import Program, wait_until

_LOOPBACK = "127.0.0.1"
#: Name of the one node that may join.
NODE_NAME = "node"
#: Who asks for what: user name and groups, known by a token each. Kubernetes' own roles give its programs their rights.
_USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "node": (f"system:node:{NODE_NAME}", "system:nodes"),
    "proxy": ("system:kube-proxy", ""),
    "operator": (operator_role.USER, ""),
}
#: Flags of the API server where no pod will look for it by its Service, and where a kubelet joins.
_ALONE = ("--authorization-mode=RBAC", "--endpoint-reconciler-type=none")
_WITH_NODE = ("--authorization-mode=Node,RBAC", "--kubelet-preferred-address-types=InternalIP")
#: A third of the usual garbage collection, for more memory: the cores are shared with what is being tested.
_GO = {"GOGC": "300"}


class ControlPlane:
    """Runs while the context is open. Its files, logs among them, are in ``directory``.

    ``address``, of this machine, is where the API server listens: a node and its pods must reach it there.
    """

    def __init__(self, directory: Path, address: str = _LOOPBACK) -> None:
        self._directory = directory
        self._address = address
        self._binaries = binaries.obtain(binaries.CONTROL_PLANE)
        self._etcd_port, self._etcd_peer_port = _free_ports(_LOOPBACK, 2)
        (self._port,) = _free_ports(address, 1)
        self._tokens = {name: secrets.token_hex(16) for name in _USERS}
        self.programs: dict[str, Program] = {}

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self._address}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """A user with every right."""
        return self.kubeconfig_of("admin")

    @property
    def operator_kubeconfig(self) -> Path:
        """The operator, with the rights of `operator_role`."""
        return self.kubeconfig_of("operator")

    def kubeconfig_of(self, user: str) -> Path:
        """One of the users that the control plane knows: admin, operator, scheduler, node, proxy."""
        return self._directory / f"{user}.kubeconfig"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            self.__exit__(None, None, None)
            for name, program in self.programs.items():
                error.add_note(f"{name}: {program.last_lines()}")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            if name in self.programs:
                self.programs[name].stop(timeout=10)

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        credentials = self._directory
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://{_LOOPBACK}:{self._etcd_port}",
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={self._port}",
            f"--cert-dir={credentials}",
            f"--token-auth-file={credentials / 'tokens.csv'}",
            f"--service-account-issuer={self.server}",
            f"--service-account-key-file={credentials / 'service-accounts.pem'}",
            f"--service-account-signing-key-file={credentials / 'service-accounts.pem'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            # Some clusters have it: who makes an owner wait for its children needs the right to the owner's finalizers.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            *(_ALONE if self._address == _LOOPBACK else _WITH_NODE),
        )
        wait_until(self._is_ready, "the API server is ready", seconds=120)

    def kill_apiserver(self) -> None:
        """Kill the API server, and wait until it has ended."""
        self.programs["kube-apiserver"].kill()

    def compact(self) -> None:
        """Have etcd forget every past version: a watch that resumes from one is told 410."""
        head = self._ask_etcd("range", {"key": base64.b64encode(b"\0").decode()})["header"]
        self._ask_etcd("compaction", {"revision": head["revision"], "physical": True})

    def start_scheduler(self) -> None:
        """Start placing pods on the nodes that have joined."""
        self._binaries |= binaries.obtain(("kube-scheduler",))
        kubeconfig = self.kubeconfig_of("scheduler")
        delegated = (f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}")
        self._run("kube-scheduler", f"--kubeconfig={kubeconfig}", *delegated, "--leader-elect=false", "--secure-port=0")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as a user with every right; never raises."""
        return subprocess.run(
            [str(self._binaries["kubectl"]), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _start(self) -> None:
        self._write_credentials()
        self._run(
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls=http://{_LOOPBACK}:{self._etcd_port}",
            f"--advertise-client-urls=http://{_LOOPBACK}:{self._etcd_port}",
            f"--listen-peer-urls=http://{_LOOPBACK}:{self._etcd_peer_port}",
            f"--initial-advertise-peer-urls=http://{_LOOPBACK}:{self._etcd_peer_port}",
            f"--initial-cluster=default=http://{_LOOPBACK}:{self._etcd_peer_port}",
            "--unsafe-no-fsync",  # it need not survive the tests
        )
        self.start_apiserver()
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig_of('controller-manager')}",
            f"--service-account-private-key-file={self._directory / 'service-accounts.pem'}",
            f"--root-ca-file={self._directory / 'apiserver.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--concurrent-gc-syncs=10",
        )
        wait_until(
            lambda: self.kubectl("get", "serviceaccount", "default").returncode == 0,
            "the controller manager makes service accounts",
        )

    def _ask_etcd(self, what: str, question: dict[str, object]) -> dict[str, dict[str, str]]:
        url = f"http://{_LOOPBACK}:{self._etcd_port}/v3/kv/{what}"
        with urllib.request.urlopen(url, json.dumps(question).encode(), timeout=10) as answer:
            found: dict[str, dict[str, str]] = json.load(answer)
        return found

    def _run(self, name: str, *flags: str) -> None:
        self.programs[name] = Program([self._binaries[name], *flags], self._directory / f"{name}.log", _GO)

    def _write_credentials(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self._directory / "service-accounts.pem").write_bytes(text)
        lines = [f'{token},{_USERS[name][0]},{name},"{_USERS[name][1]}"' for name, token in self._tokens.items()]
        (self._directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        for name, token in self._tokens.items():
            self.kubeconfig_of(name).write_text(json.dumps(self._kubeconfig(token)))

    def _kubeconfig(self, token: str) -> dict[str, object]:
        cluster = {"server": self.server, "certificate-authority": str(self._directory / "apiserver.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }

    def _is_ready(self) -> bool:
        program = self.programs["kube-apiserver"]
        if not program.is_running:
            raise RuntimeError(f"kube-apiserver ended: {program.last_lines()}")
        request = urllib.request.Request(
            f"{self.server}/readyz", headers={"Authorization": f"Bearer {self._tokens['admin']}"}
        )
        try:
            context = ssl.create_default_context(cafile=str(self._directory / "apiserver.crt"))
            with urllib.request.urlopen(request, context=context, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _free_ports(address: str, count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((address, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
