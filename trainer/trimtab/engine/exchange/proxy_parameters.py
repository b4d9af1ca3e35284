"""Parameters that stand for those of a model whose ``grad`` is somebody else's, as DDP's while its buckets are filled.

A session exchanges what it finds in the ``grad`` of its model's parameters, and leaves the mean there. It has these for
its model where it must not touch the real ones: each shares the numbers of one, and has a ``grad`` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn import Parameter


class ProxyParameters(nn.Module):
    """A model of the same parameters by the same names, which has no forward pass."""

    def __init__(self, named: Iterable[tuple[str, Parameter]]) -> None:
        super().__init__()
        self._stand_ins: dict[int, Parameter] = {}
        for name, parameter in named:
            *path, last = name.split(".")
            part: nn.Module = self
            for each in path:
                if each not in part._modules:
                    part.add_module(each, nn.Module())
                part = part.get_submodule(each)
            # By way of `data`: what a session writes to the weights is none of the autograd's business that is running.
            self._stand_ins[id(parameter)] = Parameter(parameter.data)
            part.register_parameter(last, self._stand_ins[id(parameter)])

    def of(self, parameter: Parameter) -> Parameter | None:
        """Return the proxy of ``parameter``, with the parameter's present numbers; None if it has no proxy."""
        proxy = self._stand_ins.get(id(parameter))
        if proxy is not None and proxy.data_ptr() != parameter.data_ptr():
            proxy.data = parameter.data  # the script has given it others
        return proxy
