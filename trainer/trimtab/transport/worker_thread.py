"""A thread, and on a GPU a stream of its own, on which jobs run one at a time in the order submitted."""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from trimtab.process.exit_handlers import only_in_this_process
from trimtab.transport.cuda_streams import StreamFuture, record_use

T = TypeVar("T")


class StreamWorker:
    """Runs jobs beside the thread that submits them, and their GPU work beside that thread's."""

    def __init__(self, name: str, device: torch.device, *, finishes_at_exit: bool) -> None:
        """Start the thread.

        Args:
            name: The thread's name.
            device: Device that the jobs use.
            finishes_at_exit: True if a script must not exit before the jobs are done. Where jobs wait for other
                processes it
            must exit: these are to hear that the script has failed.
        """
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], torch.cuda.Event | None, Future[Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._at_exit = only_in_this_process(self.close)
        if finishes_at_exit:
            atexit.register(self._at_exit)

    def submit(self, job: Callable[[], T], uses: object = ()) -> Future[T]:
        """Run ``job`` after those submitted before it.

        Its work on a GPU begins when all work of the calling thread's current stream is done. The stream that is
        current where the result is taken waits for it.

        Args:
            job: Runs on the worker's thread.
            uses: The caller's tensors that the job touches, in lists, dictionaries or dataclasses.
        """
        future: Future[T]
        if self._stream is None:
            ready, future = None, Future()
        else:
            ready, future = torch.cuda.current_stream(self._device).record_event(), StreamFuture(self._device)
            record_use(uses, self._stream)
        self._jobs.put((job, ready, future))
        return future

    def close(self) -> None:
        """Finish what was submitted, and end; nothing may be submitted later."""
        atexit.unregister(self._at_exit)
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        with self._on_stream():
            while (item := self._jobs.get()) is not None:
                job, ready, future = item
                try:
                    if self._stream is not None and ready is not None:
                        self._stream.wait_event(ready)
                    result = job()
                    if self._stream is not None and isinstance(future, StreamFuture):
                        future.record(self._stream)
                    future.set_result(result)
                    del result
                except BaseException as error:
                    future.set_exception(error)
                del item, job, future  # an idle lane holds no tensors

    def _on_stream(self) -> contextlib.AbstractContextManager[Any]:
        """Select the worker's device and stream for the thread's whole life: a new thread begins on the first GPU."""
        if self._stream is None:
            return contextlib.nullcontext()
        torch.cuda.set_device(self._device)
        return torch.cuda.stream(self._stream)
