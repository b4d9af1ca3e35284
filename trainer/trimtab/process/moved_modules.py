"""Modules that others' schemes import and that have moved: the old name works for one release, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The new name of a module or package by its old one; a module's own entry comes before its package's.
MOVED = {
    "trimtab.collectives.primitives": "trimtab.transport.primitives",
    "trimtab.collectives.stopwatch": "trimtab.transport.timer",
    "trimtab.collectives.transport": "trimtab.transport.base",
    "trimtab.sparsify.formed_selector": "trimtab.sparsifiers.base",
    "trimtab.sparsify": "trimtab.sparsifiers",
    "trimtab.schedule": "trimtab.plan.schedules",
    "trimtab.fusion": "trimtab.plan.fusion",
    "trimtab.profile": "trimtab.plan.profile",
}


def install() -> None:
    """Have imports of moved modules give the modules that took their place."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _new_name(name: str) -> str | None:
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None


class _Finder:  # importlib.abc, whose classes it need not have for bases, takes 20 ms of each start
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = _new_name(fullname)
        return None if new is None else ModuleSpec(fullname, _Loader(new))  # type: ignore[arg-type]


class _Loader:
    """Gives the module of another name."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} is now {self._new}; the next release drops the old name", FutureWarning, stacklevel=2
        )
        module = importlib.import_module(self._new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module, which has been executed, as it was."""
        module.__spec__ = self._spec
