"""A place that keeps nothing is told before training, without a secret; a server that dies leaves what is whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from kit.file_servers import BUCKET, USER, Server, sftp_server
from trimtab.checkpoint.manifest import new_folder, prune, saved
from trimtab.checkpoint.store import LocalStore, Store, open_store
from trimtab.checkpoint.store_probe import FOLDER, write_probe
from trimtab.launch.environment.ports import free_ports
from trimtab_api.errors import UserError
from written import part, read_all, write


def test_a_place_that_can_be_written_keeps_nothing_of_the_probe(store: Store) -> None:
    assert write_probe(store, "rank-0") == ("", "")
    store.remove(FOLDER)
    assert store.names() == []


def test_a_server_that_dies_in_the_midst_leaves_the_last_checkpoint(tmp_path: Path, sftp_environment: None) -> None:
    port = free_ports(1)[0]
    url = f"sftp://{USER}@127.0.0.1:{port}/job"
    with sftp_server(tmp_path, port) as server:
        store = open_store(url)
        whole = write(store, 10)
        torn = new_folder(20)
        part(store, torn, "rank-0", 20)
        server.kill()
        with pytest.raises(OSError):
            part(store, torn, "rank-1", 20)
    with sftp_server(tmp_path, port):
        assert [each.folder for each in saved(store)] == [whole]  # by the same store, which connects again
        read_all(store, whole)
        newest = write(store, 30)
        prune(store, 1)
        assert store.names() == [newest]


@pytest.mark.parametrize(
    ("url", "variables", "problem"),
    [
        (f"s3://{BUCKET}/job", {"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"}, "Access Key Id you provided does not exist"),
        (f"s3://{BUCKET}/job", {"AWS_SECRET_ACCESS_KEY": "another-secret"}, "signature"),
        ("s3://no-such-bucket/job", {}, "The specified bucket does not exist"),
    ],
)
def test_a_service_that_takes_nothing_is_told_without_a_secret(
    s3: Server, s3_environment: None, monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):  # were a bucket made, the second would find it
        told, _ = write_probe(open_store(url), "rank-0")
        assert problem in told
    assert "\n" not in told
    assert s3.secret not in told
    assert "another-secret" not in told


def test_a_wrong_password_is_told_without_it(sftp: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.config import conf

    monkeypatch.setitem(conf, "sftp", {"password": "wrong-horse"})
    refusal = r"^spec\.checkpoint\.path: 'sftp://.*': cannot be reached .*uthentication"
    with pytest.raises(UserError, match=refusal) as caught:
        open_store(f"sftp://{USER}@127.0.0.1:{sftp.port}/job")
    assert "wrong-horse" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("nowhere://x", "a name that fsspec does not know; write a directory, or a URL such as s3://bucket/folder"),
        ("gs://bucket/x", "needs gcsfs, which is not installed; pip install gcsfs"),
    ],
)
def test_a_url_that_no_library_reaches_is_refused(where: str, problem: str) -> None:
    with pytest.raises(UserError, match=rf"^spec\.checkpoint\.path: '{where}': .*{problem}"):
        open_store(where)


def test_a_full_disk_is_no_reason_to_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(LocalStore, "write", full)
    problem, warning = write_probe(LocalStore(tmp_path), "rank-0")
    assert problem == ""
    assert "No space left on device" in warning


@pytest.mark.parametrize("place", ["a file", "beneath a file"])
def test_a_directory_that_cannot_be_is_told(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.touch()
    problem, _ = write_probe(LocalStore(file if place == "a file" else file / "deeper"), "rank-0")
    assert "cannot be written (Not a directory)" in problem or "File exists" in problem


def test_a_directory_without_permission_is_told(tmp_path: Path) -> None:
    """As somebody who is not root, which may write anywhere."""
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
    for parent in tmp_path.parents[:-1]:
        if parent.name.startswith("pytest-"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        problem, _ = write_probe(LocalStore(tmp_path / "job"), "rank-0")
        os._exit(0 if "cannot be written (Permission denied)" in problem else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_process_reaches_s3_by_a_store_of_its_own(s3: Server, s3_environment: None) -> None:
    url = f"s3://{BUCKET}/forked"
    parent = open_store(url)
    parent.write("folder/parent", b"1")
    child = os.fork()
    if child == 0:
        open_store(url).write("folder/child", b"2")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parent.names("folder") == ["child", "parent"]
    parent.remove("folder")
