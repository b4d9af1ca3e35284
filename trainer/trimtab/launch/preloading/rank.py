"""Turns a forked process into what a fresh interpreter of the rank's command would be."""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from typing import Any

from trimtab.launch.preloading import process_title, server
from trimtab.launch.preloading.commands import PythonCommand, python_command

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
#: Seconds that the kernel has to make the launcher the parent.
_ADOPTION_SECONDS = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class Rank:
    """A forked process on its way to its command."""

    def __init__(
        self, launcher: int, conversation: int, request: int, output: int, namespace: int | None = None
    ) -> None:
        self._launcher = launcher
        self._conversation = socket.socket(fileno=conversation)
        self._output, self._namespace = output, namespace
        with open(request) as file:
            file.seek(0)
            self._request: dict[str, Any] = json.load(file)

    def become(self) -> Callable[[], None]:
        """Return what runs the command, once the launcher knows this process; end if it goes without."""
        self._bind_to_launcher()
        os.setsid()
        if self._namespace is not None:
            _enter(self._namespace)
            os.close(self._namespace)
        os.chdir(self._request["directory"])
        self._conversation.sendall(str(os.getpid()).encode())
        if not self._conversation.recv(1):
            os._exit(1)
        self._conversation.close()
        self._redirect()
        argv, environment = self._request["argv"], self._request["environment"]
        os.environ.clear()
        os.environ.update(environment)
        process_title.show(argv, environment)
        _draw_new_numbers()
        command = self.set_search_path(argv)
        sys.orig_argv[:] = argv
        sys.argv[:] = ["-m" if command.is_module else command.name, *command.arguments]
        return lambda: _run(command)

    @staticmethod
    def set_search_path(argv: Sequence[str]) -> PythonCommand:
        """Let modules be found as the command's own interpreter finds them."""
        command = python_command(argv)
        assert command is not None, "the launcher asks for nothing else"
        folder = os.getcwd() if command.is_module else os.path.dirname(os.path.realpath(command.name))
        if sys.flags.safe_path:
            return command
        sys.path[0] = folder
        return command

    def _bind_to_launcher(self) -> None:
        """Wait until the launcher is the parent, and let the kernel kill this process when the launcher ends."""
        deadline = time.monotonic() + _ADOPTION_SECONDS
        while os.getppid() != self._launcher:
            if time.monotonic() > deadline:
                os._exit(1)
            time.sleep(0.001)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._launcher:  # it ended before prctl
            os._exit(1)

    def _redirect(self) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        os.close(nothing)
        os.close(self._output)


def _enter(namespace: int) -> None:
    """Enter a network namespace."""
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _draw_new_numbers() -> None:
    """Draw what interpreters draw from the system as they start; `random` does so by itself after a fork."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (multiprocessing := sys.modules.get("multiprocessing.process")) is not None:
        multiprocessing.current_process().authkey = os.urandom(32)


def _run(command: PythonCommand) -> None:
    """Run the command as ``__main__``."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = main
    try:
        if command.is_module:
            runpy._run_module_as_main(command.name)  # type: ignore[attr-defined]
            return
        file = os.path.abspath(command.name)
        loader = SourceFileLoader("__main__", file)
        main.__dict__.update(__file__=file, __cached__=None, __loader__=loader)
        exec(compile(loader.get_data(file), file, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - the user's script
    except BaseException:
        sys.excepthook = _without_these_frames(sys.excepthook)
        raise


def _without_these_frames(hook: Callable[..., object]) -> Callable[..., object]:
    """Return ``hook``, which is called with a traceback as a fresh interpreter's."""

    def call(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        ours = (__file__, server.__file__)
        while trace is not None and trace.tb_frame.f_code.co_filename in ours:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    return call
