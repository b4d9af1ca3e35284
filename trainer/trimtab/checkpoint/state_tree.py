"""A training state taken apart: its tensors, and the rest as plain JSON that names their places.

Nothing of it is code: what comes back is made of numbers, text, containers, tensors and NumPy arrays alone.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Key of an object that stands for what JSON cannot say; a dictionary that has it as a key is written as pairs.
_KIND = "$"
#: Kinds of NumPy's numbers: boolean, whole, unsigned, floating and complex.
_ARRAY_KINDS = "biufc"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class NotPlainError(ValueError):
    """A state holds what no file keeps, or a file holds what is no state; the message names the place."""


@dataclass
class Parts:
    """A state in parts."""

    skeleton: Any = None
    """Plain JSON; each tensor is a reference by name."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Tensors by name; two references to one tensor share a name."""


def take_apart(state: Any) -> Parts:
    """Return the parts of ``state``; tensors are those of the state, not copies.

    Raises:
        NotPlainError: It holds something else than plain data, tensors and arrays.
    """
    parts, names = Parts(), dict[tuple[Any, ...], str]()

    def name_of(tensor: Tensor) -> str:
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else (id(tensor),)
        if key not in names:
            names[key] = f"t{len(names)}"
            parts.tensors[names[key]] = tensor.detach()
        return names[key]

    parts.skeleton = _taken(state, "state", name_of)
    return parts


def _taken(value: Any, place: str, name_of: Callable[[Tensor], str]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) is int:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_KIND: "float", "is": str(float(value))}
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise NotPlainError(f"{place} is a {value.layout} tensor; keep a dense one")
        return {_KIND: "tensor", "is": name_of(value)}
    if isinstance(value, np.ndarray | np.generic):
        return _array(value, place, name_of)
    if isinstance(value, bytes):
        return {_KIND: "bytes", "is": base64.b64encode(value).decode()}
    if isinstance(value, torch.Size | tuple):
        return {_KIND: "tuple", "is": [_taken(each, f"{place}[{i}]", name_of) for i, each in enumerate(value)]}
    if isinstance(value, list):
        return [_taken(each, f"{place}[{i}]", name_of) for i, each in enumerate(value)]
    if isinstance(value, set | frozenset):
        return {_KIND: "set", "is": [_taken(each, place, name_of) for each in sorted(value, key=repr)]}
    if isinstance(value, torch.dtype):
        return {_KIND: "dtype", "is": str(value).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return _mapping(value, place, name_of)
    if isinstance(value, int):  # bool is above; an enum of whole numbers is no plain number
        raise NotPlainError(f"{place} is a {type(value).__name__}; keep int(...) of it")
    raise NotPlainError(f"{place} is a {type(value).__name__}; keep plain data, tensors and arrays")


def _mapping(value: Mapping[Any, Any], place: str, name_of: Callable[[Tensor], str]) -> Any:
    def taken(key: Any) -> Any:
        return _taken(value[key], f"{place}[{key!r}]", name_of)

    if all(isinstance(key, str) for key in value) and _KIND not in value:
        return {key: taken(key) for key in value}
    return {_KIND: "dict", "is": [[_taken(key, f"a key of {place}", name_of), taken(key)] for key in value]}


def _array(value: np.ndarray[Any, Any] | np.generic, place: str, name_of: Callable[[Tensor], str]) -> Any:
    array = np.ascontiguousarray(value)
    if array.dtype.kind not in _ARRAY_KINDS:
        raise NotPlainError(f"{place} is an array of {array.dtype}; keep numbers")
    raw = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    return {_KIND: kind, "is": name_of(raw), "dtype": array.dtype.str, "shape": list(np.shape(value))}


def put_together(skeleton: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state of which `take_apart` made these parts.

    Raises:
        NotPlainError: They are no parts of a state, or a tensor is missing.
    """
    try:
        return _put(skeleton, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, NotPlainError):
            raise
        raise NotPlainError(f"is no state ({type(error).__name__}: {error})") from error


def _put(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_put(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        return {key: _put(each, tensors) for key, each in value.items()}
    kind, held = value[_KIND], value["is"]
    if kind == "tensor":
        return tensors[held]
    if kind in ("array", "scalar"):
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in _ARRAY_KINDS:
            raise NotPlainError(f"holds an array of {dtype}, which this version does not know")
        array = tensors[held].numpy().view(dtype).reshape(value["shape"]).copy()
        return array if kind == "array" else array[()]
    if kind == "dict":
        return {_put(key, tensors): _put(each, tensors) for key, each in held}
    if kind == "tuple":
        return tuple(_put(each, tensors) for each in held)
    if kind == "set":
        return {_put(each, tensors) for each in held}
    if kind == "float":
        return _FLOATS[held]
    if kind == "bytes":
        return base64.b64decode(held, validate=True)
    if kind == "dtype":
        found = getattr(torch, held)
        if isinstance(found, torch.dtype):
            return found
    raise NotPlainError(f"holds a value of the kind {kind!r}, which this version does not know")
