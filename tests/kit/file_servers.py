"""Servers of files that checkpoints are kept on: S3's protocol by moto, and SFTP by asyncssh."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.launch.environment.ports import free_ports

USER, PASSWORD = "trainer", "correct-horse-battery"
BUCKET = "checkpoints"

_SFTP = """
import asyncio, sys, asyncssh
class Server(asyncssh.SSHServer):
    def password_auth_supported(self):
        return True
    def validate_password(self, user, password):
        return (user, password) == (sys.argv[3], sys.argv[4])
async def main():
    await asyncssh.listen(
        "127.0.0.1",
        int(sys.argv[1]),
        server_factory=Server,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=sys.argv[2].encode()),
    )
    await asyncio.Event().wait()
asyncio.run(main())
"""


@dataclass
class Server:
    """A server's process, what a client needs, and where its files are."""

    port: int
    process: subprocess.Popen[bytes]
    secret: str
    variables: dict[str, str] = field(default_factory=dict)
    """What a trainer's environment must hold."""

    def kill(self) -> None:
        """End it at once, as a machine that fails."""
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def started(argv: list[str], port: int, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block is left; it listens when this yields."""
    environment = {**os.environ, **variables}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for_port(port, process)
            yield process
        finally:
            process.kill()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args}: nobody listens on port {port}")


@contextlib.contextmanager
def s3_server() -> Iterator[Server]:
    """Serve S3 from memory: one bucket, one user with a key; whoever has another key is turned away."""
    import boto3

    port = free_ports(1)[0]
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with started(argv, port, INITIAL_NO_AUTH_ACTION_COUNT="4") as process:
        url = f"http://127.0.0.1:{port}"
        common = {"endpoint_url": url, "region_name": "us-east-1"}
        before = {**common, "aws_access_key_id": "none", "aws_secret_access_key": "none"}
        boto3.client("s3", **before).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **before)
        iam.create_user(UserName=USER)
        key = iam.create_access_key(UserName=USER)["AccessKey"]
        policy = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
        iam.put_user_policy(UserName=USER, PolicyName="all", PolicyDocument=policy)
        variables = {
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_ENDPOINT_URL": url,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield Server(port, process, key["SecretAccessKey"], variables)


@contextlib.contextmanager
def sftp_server(root: Path, port: int | None = None) -> Iterator[Server]:
    """Serve the directory by SFTP to one user."""
    port = port or free_ports(1)[0]
    with started([sys.executable, "-c", _SFTP, str(port), str(root), USER, PASSWORD], port) as process:
        yield Server(port, process, PASSWORD, {"FSSPEC_SFTP_PASSWORD": PASSWORD})
