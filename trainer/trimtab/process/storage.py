"""What a process can tell of a place for files before it writes there: whether a library reaches it, and who may write.

Launchers ask it before they start ranks, and sessions before they write; neither needs torch for it.
"""

from __future__ import annotations

import os
from pathlib import Path


def is_url(where: str) -> bool:
    """Return whether a place is a URL, and no path."""
    return "://" in where


def unreachable_reason(url: str) -> str | None:
    """Return why no library reaches a URL, and what to do; None if one does."""
    import fsspec

    protocol = fsspec.core.split_protocol(url.partition("::")[0] if "::" in url else url)[0]
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or "its library"
        return f"needs {package}, which is not installed; pip install {package} wherever a rank runs"
    except ValueError:
        return "begins with a name that fsspec does not know; write a directory, or a URL such as s3://bucket/folder"
    return None


def unwritable_reason(directory: Path) -> str | None:
    """Return why this process can make no files in a directory, which need not be there yet; None if it may.

    Nothing is made. Only writing shows the rest: a full disk, a quota, what a server allows.
    """
    there = directory
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"cannot be made, since {there} is no directory; name another path"
    if not os.access(there, os.W_OK | os.X_OK):
        whose = "" if there == directory else f" in {there}, where it is to be made"
        return f"cannot be written by this process{whose}; let it write there, or name another path"
    return None
