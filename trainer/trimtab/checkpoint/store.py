"""Where checkpoints are: a directory, or whatever fsspec reaches by a URL, such as ``s3://bucket/job``."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab_api.errors import UserError

from trimtab.checkpoint.whole_files import PARTIAL, sync_folder
from trimtab.process.storage import is_url, unreachable_reason

#: The field of a job that says where its checkpoints are.
FIELD = "spec.checkpoint.path"


class Store(ABC):
    """Files by name; a name may hold one slash. A file is there as a whole or not at all, unless its writer died."""

    @abstractmethod
    def write(self, name: str, data: bytes | memoryview) -> None:
        """Keep ``data`` under ``name``; it outlives this process, and a local host, when this returns.

        Raises:
            OSError: It cannot be kept.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return what is kept under ``name``.

        Raises:
            FileNotFoundError: There is nothing.
            OSError: It cannot be read.
        """

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """Return the names of files and folders in ``folder``, without it; nothing where it is not there."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove ``folder`` with all that it holds; nothing happens where it is not there."""


def open_store(where: str) -> Store:
    """Return the store of a directory's path or of a URL.

    Raises:
        UserError: No library that is installed here reaches such a URL, or its server lets nobody in.
    """
    if not is_url(where):
        return LocalStore(Path(where))
    if problem := unreachable_reason(where):
        raise UserError(problem, field=FIELD, value=where)
    store = RemoteStore(where)
    try:
        store.connect()
    except OSError as error:
        problem = f"cannot be reached ({error.strerror or error}); mend that, or name another path"
        raise UserError(problem, field=FIELD, value=where) from None
    return store


class LocalStore(Store):
    """A directory of this machine, or one that all hosts mount."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, data: bytes | memoryview) -> None:
        """See `Store.write`."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + PARTIAL)
        try:
            with partial.open("wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
        sync_folder(path.parent.parent)

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        return (self._root / name).read_bytes()

    def names(self, folder: str = "") -> list[str]:
        """See `Store.names`."""
        path = self._root / folder
        return sorted(each.name for each in path.iterdir()) if path.is_dir() else []

    def remove(self, folder: str) -> None:
        """See `Store.remove`."""
        path = self._root / folder
        if not path.is_dir():
            return
        for name in sorted(self.names(folder), key=_manifest_first):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


class RemoteStore(Store):
    """What fsspec reaches. Whoever reads it checks what it reads: not every service keeps a file as a whole."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem: Any = None
        """None: there is no connection, or what came last over it was an error, after which some stay broken."""
        self._root = ""

    def connect(self) -> None:
        """Reach the service, unless it is reached already.

        Raises:
            OSError: Nobody answers, or lets this process in.
        """
        if self._filesystem is not None:
            return
        import fsspec

        with _as_os_error():
            self._filesystem, root = fsspec.core.url_to_fs(self._url, skip_instance_cache=True)
        self._root = root.rstrip("/")

    def write(self, name: str, data: bytes | memoryview) -> None:
        """See `Store.write`."""
        with self._connected() as filesystem:
            path = f"{self._root}/{name}"
            try:
                filesystem.pipe_file(path, bytes(data))
            except FileNotFoundError:
                if not self._has_folders():
                    raise
                filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
                filesystem.pipe_file(path, bytes(data))

    def _has_folders(self) -> bool:
        """Return whether folders can be made. A bucket is never made: its name may be misspelt."""
        bucket = self._root.partition("/")[0]
        return not bucket or bool(self._filesystem.exists(bucket))

    def read(self, name: str) -> bytes:
        """See `Store.read`."""
        with self._connected() as filesystem:
            return bytes(filesystem.cat_file(f"{self._root}/{name}"))

    def names(self, folder: str = "") -> list[str]:
        """See `Store.names`."""
        with self._connected() as filesystem:
            path = f"{self._root}/{folder}".rstrip("/")
            filesystem.invalidate_cache()
            try:
                found = filesystem.ls(path, detail=False)
            except FileNotFoundError:
                return []
        return sorted({each.rstrip("/").rpartition("/")[2] for each in found if each.rstrip("/") != path})

    def remove(self, folder: str) -> None:
        """See `Store.remove`."""
        names = self.names(folder)
        with self._connected() as filesystem:
            path = f"{self._root}/{folder}"
            for name in sorted(names, key=_manifest_first):
                filesystem.rm_file(f"{path}/{name}")
            if filesystem.exists(path):
                filesystem.rmdir(path)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        self.connect()
        try:
            with _as_os_error():
                yield self._filesystem
        except FileNotFoundError:
            raise
        except OSError:
            self._filesystem = None
            raise


def _manifest_first(name: str) -> tuple[bool, str]:
    """Order the files of a checkpoint so that no half of it is taken for a whole one while it is removed."""
    return not name.endswith(".json"), name


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Turn what clients of services raise into `OSError`, whose text holds no address with a secret."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {str(error).partition('?')[0]}") from error
