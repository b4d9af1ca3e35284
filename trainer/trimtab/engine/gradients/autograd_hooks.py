"""When a tensor's gradient is complete, and when a backward pass has ended, as autograd tells it.

Others may hook into autograd as well. So a tensor's gradient counts as complete once every hook on it has run, and a
pass as ended when the outermost one has (reentrant checkpointing runs passes inside a pass, and autograd calls back at
the end of each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from trimtab.transport.cuda_streams import StreamChain


class BackwardHooks:
    """Calls ``on_gradient(index)`` as each parameter's gradient is complete, then ``on_end()``, on autograd's thread.

    What either raises leaves ``backward()``. After a pass that ended with an exception ``on_end`` is not called.
    """

    def __init__(
        self, parameters: Sequence[Parameter], on_gradient: Callable[[int], None], on_end: Callable[[], None]
    ) -> None:
        self._parameters = parameters
        self._on_gradient, self._on_end = on_gradient, on_end
        self._passes: set[int] = set()
        """Passes, as autograd numbers them, whose end is to be told."""
        self.num_ended = 0
        """Passes that have ended, but for those inside of others."""
        self._waiting: int | None = None
        """The parameter whose gradient other hooks may still change."""
        # Autograd works on the streams that forward used: who is told of a gradient may use all those before it.
        self._streams = StreamChain(parameters[0].device)
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, parameter in enumerate(parameters)
        ]

    def tell(self, index: int) -> None:
        """Take parameter ``index``'s gradient from its ``grad``, where somebody else has put it: no hook sees that."""
        self._streams.join()
        self._on_gradient(index)

    def end(self) -> None:
        """End a pass whose gradients came by `tell`."""
        self.num_ended += 1
        self._on_end()

    def remove(self) -> None:
        """Leave the parameters as they were."""
        for handle in self._handles:
            handle.remove()

    @property
    def is_inside(self) -> bool:
        """True if a pass is under way, or has ended with an exception."""
        return bool(self._passes)

    def _hook(self, index: int) -> Callable[[Tensor], None]:
        def on_accumulated(_: Tensor) -> None:
            self._watch_pass()
            self._streams.join()
            self._tell_waiting()
            if self._is_last_hook(index):
                self._on_gradient(index)
            else:
                self._waiting = index

        return on_accumulated

    def _is_last_hook(self, index: int) -> bool:
        """Return whether nobody has registered a hook after ours; such a hook may change the local gradient."""
        hooks: Any = getattr(self._parameters[index], "_post_accumulate_grad_hooks", None)
        return hooks is not None and next(reversed(hooks)) == self._handles[index].id

    def _tell_waiting(self) -> None:
        if self._waiting is not None:
            index, self._waiting = self._waiting, None
            self._on_gradient(index)

    def _watch_pass(self) -> None:
        """Have autograd tell of the end of the pass that runs now."""
        number = torch._C._current_graph_task_id()
        if number not in self._passes:
            self._passes.add(number)
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self._ended(number))

    def _ended(self, number: int) -> None:
        self._passes.discard(number)
        self._tell_waiting()
        inside: Any = torch._C._current_autograd_node()
        if inside is None:
            self._passes.clear()  # of passes that an exception ended
            self.num_ended += 1
            self._on_end()
            return
        for function, _ in inside.next_functions:
            if function is not None:  # what runs next in the pass around this one
                function.register_prehook(lambda *_: self._watch_pass())
