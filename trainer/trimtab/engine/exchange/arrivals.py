"""One iteration's means over ranks as they arrive: before the update, or some only before the next forward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _foreach_utils

from trimtab.engine.exchange.gradient_writer import GradientWriter
from trimtab.engine.exchange.in_flight import PendingExchange, PendingExchanges
from trimtab.engine.gradients.flat_buffers import FlatBuffers
from trimtab.engine.phase_timer import PhaseTimer


class Arrivals:
    """Makes each ``grad`` what the optimizer is to see, once all of its tensor has arrived.

    Until the optimizer steps, gradients that are late are seen as such (`LazyGradient`): a script may use them.
    """

    def __init__(
        self,
        flat_buffers: FlatBuffers,
        handed: GradientWriter,
        late: Iterable[PendingExchange],
        unused: Collection[int],
        phases: PhaseTimer,
    ) -> None:
        """``late`` are exchanges that may arrive after the update; ``unused``, tensors without a gradient on any rank.

        ``phases`` counts the wait for late exchanges.
        """
        self._flat_buffers, self._writer, self._unused, self._phases = flat_buffers, handed, unused, phases
        self.late = list(late)
        """Late exchanges whose gradients have not been written yet."""
        self.completed_late = PendingExchanges(self.late)
        self._with_any: set[int] = set()
        """Tensors, by index, of which the optimizer gets something."""
        self._averages = False
        self._shown: dict[int, LazyGradient] = {}
        """By tensor: its ``grad`` while it was late."""
        self._are_put_off = False
        """True if the optimizer was to step without late gradients."""
        self._on_read: Callable[[], object] | None = None
        """Called where the script uses a late gradient; None: `write_deferred`. A method of this object is a cycle."""

    def write_gradients(self, num_buckets: int, *, averages: bool, scale: float | None) -> None:
        """Write all gradients but late ones, times the loss scale."""
        self._averages = averages
        late = {pending_exchange.send.bucket for pending_exchange in self.late}
        numbers = [number for number in range(num_buckets) if number not in late]
        self._with_any |= self._writer.write(numbers, averages=averages)
        if scale not in (None, 1.0):
            self._flat_buffers.grad.mul_(scale)
        self.write_deferred(self._unused)  # only what has arrived tells whether it is to be seen: a residual may be
        whole = set(range(len(self._flat_buffers.parameters))) - self._awaited
        for index in set(range(len(self._flat_buffers.parameters))) - self._to_be_seen(whole):
            self._flat_buffers.parameters[index].grad = None
        giving = [
            pending_exchange for pending_exchange in self.late if self._writer.gives(pending_exchange.send.bucket)
        ]
        wait = _reader_of(weakref.ref(self))
        for index in (_tensors(giving) | self._with_any) & self._awaited:
            self._shown[index] = LazyGradient.of(self._flat_buffers.views[index], wait)
        self.install_placeholder()

    def install_placeholder(self) -> None:
        """Let late gradients be seen as such."""
        for index in self._awaited & self._shown.keys():
            self._flat_buffers.parameters[index].grad = self._shown[index]

    def defer(self) -> None:
        """Let the optimizer step without late gradients; if the script has replaced one of them, wait for all.

        Afterwards `write_deferred` writes late gradients whatever ``grad`` is then.
        """
        parameters = self._flat_buffers.parameters
        if any(parameters[index].grad is not self._shown[index] for index in self._awaited & self._shown.keys()):
            self.write_deferred()
        for index in self._awaited:
            parameters[index].grad = None
        self._are_put_off = True

    def due(self, tensors: Collection[int] | None) -> list[PendingExchange]:
        """Return late exchanges of ``tensors``, by index (None: of all)."""
        return [
            pending_exchange for pending_exchange in self.late if tensors is None or _holds(pending_exchange, tensors)
        ]

    def write_deferred(self, tensors: Collection[int] | None = None) -> bool:
        """Wait for the exchanges `due` of ``tensors``, and write their gradients; return whether there were any.

        Before `defer`, what the script has put in a gradient's place stays.
        """
        due = self.due(tensors)
        if not due:
            return False
        with self._phases.during("exposed"):
            PendingExchanges(due).wait()
        awaited, numbers = self._awaited, {pending_exchange.send.bucket for pending_exchange in due}
        self.late = [pending_exchange for pending_exchange in self.late if pending_exchange.send.bucket not in numbers]
        self._with_any |= self._writer.write(numbers, averages=self._averages)
        for index in self._to_be_seen(awaited - self._awaited):
            if self._are_put_off or self._flat_buffers.parameters[index].grad is self._shown.get(index):
                self._flat_buffers.parameters[index].grad = self._flat_buffers.views[index]
        return True

    def resolve(self, index: int, grad: Tensor | None) -> Tensor | None:
        """Return ``grad`` of tensor ``index``, or the mean if that gradient was late and has arrived."""
        is_deferred = grad is not None and grad is self._shown.get(index)
        return self._flat_buffers.views[index] if is_deferred and index not in self._awaited else grad

    def on_read(self, call: Callable[[], object]) -> None:
        """Call ``call`` where the script uses a deferred gradient."""
        self._on_read = call

    def read(self) -> None:
        """Wait for late gradients, as the script uses one."""
        if self.late:
            (self._on_read or self.write_deferred)()

    @property
    def _awaited(self) -> set[int]:
        """Tensors of which a part is late."""
        return _tensors(self.late)

    def _to_be_seen(self, whole: set[int]) -> set[int]:
        """Return those of ``whole`` tensors that the optimizer is to move."""
        return (whole & self._with_any) - set(self._flat_buffers.all_zero(sorted(whole.intersection(self._unused))))


def _reader_of(arrivals: weakref.ref[Arrivals]) -> Callable[[], None]:
    """Return what a late gradient calls where it is used; only a weak reference, as ``arrivals`` keeps the gradient.

    Once another step has replaced ``arrivals``, nothing of the gradient is late any more.
    """

    def read() -> None:
        if (present := arrivals()) is not None:
            present.read()

    return read


def _tensors(pending_exchanges: Iterable[PendingExchange]) -> set[int]:
    return {
        index
        for pending_exchange in pending_exchanges
        for index in range(pending_exchange.span.first, pending_exchange.span.last)
    }


def _holds(pending_exchange: PendingExchange, tensors: Collection[int]) -> bool:
    return any(index in tensors for index in range(pending_exchange.span.first, pending_exchange.span.last))


class LazyGradient(Tensor):
    """Lies where the mean is to arrive."""

    _arrived: Tensor
    _wait: Callable[[], object]

    @staticmethod
    def of(view: Tensor, wait: Callable[[], object]) -> LazyGradient:
        """Return a late gradient for ``view``, which holds the mean once ``wait`` has returned."""
        late = view.detach().as_subclass(LazyGradient)
        late._arrived, late._wait = view, wait
        return late

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call ``func``, one of whose arguments is late, once that has arrived."""
        return func(*_arrived(tuple(args)), **_arrived(kwargs or {}))


def _arrived(value: Any) -> Any:
    """Return ``value`` with the means that have arrived in place of late gradients, also in lists and mappings."""
    if isinstance(value, LazyGradient):
        with torch._C.DisableTorchFunctionSubclass():
            value._wait()
            return value._arrived
    if isinstance(value, Mapping):
        return {name: _arrived(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_arrived, value))
    return value


# torch clips many tensors at once only where it knows their types: norms are to be the same to the last bit.
getattr(_foreach_utils, "_foreach_supported_types", []).append(LazyGradient)
