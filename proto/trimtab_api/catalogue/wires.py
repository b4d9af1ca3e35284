"""The wire formats: how values are encoded."""

from __future__ import annotations

from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.rows import Wire

#: Values that share a scale where they cross in a few bits.
VALUES_PER_BLOCK = 64
_FORMATS = "trimtab.wire.value_formats"


def _of_blocks(bits: int, num_scales: int, error: float, passes: float, *, is_default: bool) -> Wire:
    return Wire(
        f"int{bits}",
        f"{bits} bits, scaled by each block of {VALUES_PER_BLOCK} values",
        f"{_FORMATS}:Blocks",
        {"bits": bits},
        bytes_per_value=bits / 8 + 2 * num_scales / VALUES_PER_BLOCK,
        error=error,
        passes=passes,
        is_default=is_default,
    )


wires: Registry[Wire] = Registry(
    "wire",
    Wire("float32", "values as they are", f"{_FORMATS}:Float32", is_default=True),
    Wire(
        "bfloat16",
        "half the bytes",
        f"{_FORMATS}:BFloat16",
        bytes_per_value=2,
        error=0.002,
        passes=1.0,
        rounds_dense=True,
    ),
    _of_blocks(8, num_scales=1, error=0.006, passes=1.5, is_default=True),
    _of_blocks(4, num_scales=1, error=0.11, passes=1.5, is_default=True),
    _of_blocks(2, num_scales=2, error=0.35, passes=4.0, is_default=False),
)
