"""A module's parameters while the step of some is under way: whoever takes one from the module has it stepped first.

All of torch takes weights by way of ``module._parameters``: ``module.weight``, ``parameters()``, ``state_dict()``, a
copy or a file of the whole module, and a module that uses the weight of another. So that is where this stands, between
the optimizer's step and the last late one. A parameter that a script has kept from before, as in a list of its own, is
not taken from the module again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from torch import nn

_PARAMETERS = "_parameters"


def as_they_are(module: nn.Module) -> Mapping[str, Any]:
    """Return the module's own parameters by name, without waiting for any."""
    own: Mapping[str, Any] = module._parameters
    return own.plain if isinstance(own, LazyParameters) else own


class LazyParameters(MutableMapping[str, Any], dict[str, Any]):  # type: ignore[misc, metaclass]
    """Stands for the ``_parameters`` of one module, which come back by `remove`."""

    def __init__(self, module: nn.Module, late: Mapping[str, int], settle: Callable[[set[int] | None], None]) -> None:
        """``settle`` takes the number of a tensor in ``late``, by its name here, or None for all of the model."""
        self.plain: dict[str, Any] = module.__dict__[_PARAMETERS]
        """The module's plain ``_parameters``."""
        dict.update(self, self.plain)  # for what reads it as a dict, past its methods
        self._module, self._late, self._settle = module, late, settle
        module.__dict__[_PARAMETERS] = self

    def remove(self) -> None:
        """Leave the module as it was."""
        self._module.__dict__[_PARAMETERS] = self.plain

    __contains__ = dict.__contains__
    __len__ = dict.__len__

    def __getitem__(self, name: str) -> Any:
        """Return one parameter, which is stepped first; the others stay late."""
        if name in self._late:
            self._settle({self._late[name]})
        return self.plain[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, once all parameters of the model are stepped."""
        self._settle(None)
        return iter(self.plain)

    def __setitem__(self, name: str, value: Any) -> None:
        """Replace a parameter, once all are stepped."""
        self._settle(None)
        self.plain[name] = value
        dict.__setitem__(self, name, value)  # type: ignore[index]

    def __delitem__(self, name: str) -> None:
        """Delete a parameter, once all are stepped."""
        self._settle(None)
        del self.plain[name]
        dict.__delitem__(self, name)  # type: ignore[arg-type]

    def copy(self) -> dict[str, Any]:
        """Return a plain dictionary, once all parameters are stepped."""
        self._settle(None)
        return self.plain.copy()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Reduce to a plain dictionary: copies and files need no trimtab."""
        self._settle(None)
        return type(self.plain), (dict(self.plain),)
