"""Stands in for a GPU and a backend that sums a GPU's tensors alone, such as NCCL: what is elsewhere is refused.

`OnDevice` marks tensors as a GPU's: whatever torch computes of them is marked too, and computing them together with an
unmarked one raises, as CUDA does. They are tensors of the CPU, and Gloo carries them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from trimtab.transport.gpu import GpuTransport
from trimtab.transport.tcp import SocketTransport

#: torch makes nothing there by itself that could be sent.
DEVICE = torch.device("meta")
_FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")
#: What takes no more of a tensor elsewhere than its shape, or is what copies between devices.
_MAY_CROSS = ("copy_", "to", "view_as")


class OnDevice(Tensor):
    """A tensor that counts as one on `DEVICE`."""

    device = DEVICE

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        tensors = [each for value in arguments for each in (value if isinstance(value, list | tuple) else [value])]
        strangers = [each for each in tensors if type(each) is Tensor and each.dim() > 0]
        if strangers and function.__name__ not in _MAY_CROSS:
            raise RuntimeError(f"{function.__name__}: expected all tensors to be on the same device")
        return super().__torch_function__(function, types, arguments, options or {})

    def cpu(self):
        return self.as_subclass(Tensor)

    def numpy(self):
        raise TypeError("can't convert a device's tensor to numpy; use Tensor.cpu() first")


def over(sockets: SocketTransport, device: torch.device) -> GpuTransport:
    """A GPU's transport over connected ``sockets``, summing over the default process group."""
    connections = {peer: each.socket for peer, each in sockets._connections.items()}
    return GpuTransport(sockets.rank, connections, sockets.deadline, device=device, process_group=None)


@contextlib.contextmanager
def only_device_tensors() -> Iterator[None]:
    """Within, tensors made on `DEVICE` or moved there are `OnDevice`, and the backend takes no others."""
    with contextlib.ExitStack() as stack:
        for name in _FACTORIES:
            stack.enter_context(mock.patch.object(torch, name, _marking(getattr(torch, name))))
        stack.enter_context(mock.patch.object(Tensor, "to", _moving(Tensor.to)))
        stack.enter_context(mock.patch.object(dist, "all_reduce", _refusing(dist.all_reduce, 0)))
        yield


def _marking(factory):
    def make(*arguments, device=None, **options):
        if device != DEVICE:
            return factory(*arguments, device=device, **options)
        return factory(*arguments, **options).as_subclass(OnDevice)

    return make


def _moving(to):
    def move(tensor, *arguments, **options):
        if DEVICE in (*arguments, options.get("device")):
            return tensor.as_subclass(OnDevice)
        return to(tensor, *arguments, **options)

    return move


def _refusing(operation, position):
    def operate(*arguments, **options):
        if not isinstance(arguments[position], OnDevice):
            raise RuntimeError("No backend type associated with device type cpu")
        given = [each.as_subclass(Tensor) if isinstance(each, OnDevice) else each for each in arguments]
        return operation(*given, **options)

    return operate
