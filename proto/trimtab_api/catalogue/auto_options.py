"""Specs of collectives in which ``auto`` stands for each legal value of an option, for a controller to choose from."""

from __future__ import annotations

from itertools import product
from typing import Any

from trimtab_api.catalogue.collectives import collectives
from trimtab_api.catalogue.options import Option, format_spec, parse_options, split_spec
from trimtab_api.errors import UserError

#: The value that stands for each legal one.
AUTO = "auto"


def normalize_choice(text: str) -> str:
    """Return the normal form of a collective's spec, of which options may be ``auto``.

    Raises:
        UserError: If the spec is wrong, or an option takes no ``auto``.
    """
    name, values, known = _parsed(text)
    return format_spec(name, values, known)


def expand(text: str, num_ranks: int) -> tuple[str, ...]:
    """Return the specs that a spec with ``auto`` stands for, the one of all defaults first if it is among them.

    Raises:
        UserError: If the spec is wrong, or an option takes no ``auto``.
    """
    name, values, known = _parsed(text)
    choices: list[tuple[Any, ...]] = [
        option.auto(num_ranks) if option.auto and values[option.name] == AUTO else (values[option.name],)
        for option in known
    ]
    names = [option.name for option in known]
    return tuple(format_spec(name, dict(zip(names, chosen, strict=True)), known) for chosen in product(*choices))


def _parsed(text: str) -> tuple[str, dict[str, Any], tuple[Option, ...]]:
    row = collectives[text]
    known = collectives.options_of(row)
    try:
        name, options = split_spec(text)
        automatic = [key for key, value in options.items() if value == AUTO]
        takes = [option.name for option in known if option.auto is not None]
        for key in automatic:
            if key not in takes:
                others = f"only {', '.join(takes)} may be" if takes else f"no option of {name} may be"
                raise ValueError(f"{key}={AUTO}: {others} {AUTO}")
        given = {key: value for key, value in options.items() if key not in automatic}
        values = parse_options(given, known)
        for option in known:
            if (value := values[option.name]) in option.static_only:
                raise ValueError(f"{option.name}={value}: loses gradient; only a Static plan may name it")
    except ValueError as error:
        raise UserError(str(error), field=collectives.name, value=text) from None
    return name, {**values, **dict.fromkeys(automatic, AUTO)}, known
