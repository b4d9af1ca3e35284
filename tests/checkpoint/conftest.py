"""Stores of each kind, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.config import conf
from kit.file_servers import BUCKET, PASSWORD, USER, Server, s3_server, sftp_server
from trimtab.checkpoint.store import Store, open_store


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3_environment(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sftp_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        conf, "sftp", {"password": PASSWORD}
    )  # as fsspec reads FSSPEC_SFTP_PASSWORD when it is imported


@pytest.fixture
def sftp(tmp_path: Path, sftp_environment: None) -> Iterator[Server]:
    with sftp_server(tmp_path) as server:
        yield server


@pytest.fixture(params=["directory", "memory", "s3", "sftp"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        yield open_store(str(tmp_path / "checkpoints"))
        return
    url = f"memory://{tmp_path}"
    if request.param == "s3":
        request.getfixturevalue("s3_environment")
        url = f"s3://{BUCKET}/{tmp_path.name}"
    if request.param == "sftp":
        url = f"sftp://{USER}@127.0.0.1:{request.getfixturevalue('sftp').port}/a/b"
    opened = open_store(url)
    yield opened
    for folder in opened.names():
        opened.remove(folder)
