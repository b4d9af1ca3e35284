"""Specs of collectives in which ``auto`` stands for each legal value of an option, for a controller to choose from."""

from __future__ import annotations

from itertools import product

from trimtab_api.catalogue.collectives import collectives
from trimtab_api.catalogue.options import Option
from trimtab_api.errors import UserError

#: The value that stands for each legal one.
AUTO = "auto"


def normalize_choice(text: str) -> str:
    """Return the normal form of a collective's spec, of which options may be ``auto``.

    Raises:
        UserError: If the spec is wrong, or an option takes no ``auto``.
    """
    base, automatic = _split(text)
    return collectives.with_options(base, **{option.name: AUTO for option in automatic})


def expand(text: str, num_ranks: int) -> tuple[str, ...]:
    """Return the specs that a spec with ``auto`` stands for, the one of all defaults first if it is among them.

    Raises:
        UserError: If the spec is wrong, or an option takes no ``auto``.
    """
    base, automatic = _split(text)
    names = [option.name for option in automatic]
    values = [option.auto(num_ranks) for option in automatic if option.auto is not None]
    return tuple(collectives.with_options(base, **dict(zip(names, chosen, strict=True))) for chosen in product(*values))


def _split(text: str) -> tuple[str, list[Option]]:
    """Return the spec with defaults in place of ``auto``, and the options that are ``auto``."""
    known = collectives.options_of(collectives[text])
    automatic = [option for option in known if option.auto and f"{option.name}={AUTO}" in text.split(":")]
    base = text
    for option in automatic:
        base = base.replace(f":{option.name}={AUTO}", f":{option.name}={option.default}")
    values = collectives.options(base)
    for option in known:
        if (value := values[option.name]) in option.static_only:
            remedy = f"{option.name}={value}: loses gradient; only a Static plan may name it"
            raise UserError(remedy, field=collectives.name, value=text)
    return base, automatic
