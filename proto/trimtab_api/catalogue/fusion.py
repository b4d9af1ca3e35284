"""Fusion planners: which tensors share a buffer."""

from trimtab_api.catalogue.row import Option, Row

PLANNERS = (
    Row(name="single", meaning="One buffer for all tensors.", factory="trimtab.fusion.single:single"),
    Row(
        name="fixed",
        meaning="A buffer is closed where the next tensor would take it over a size.",
        factory="trimtab.fusion.fixed:fixed_size",
        options=(Option("bytes", "most bytes of gradient in a buffer of several tensors"),),
    ),
)
