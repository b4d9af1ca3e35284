"""How N gradients become one mean: one file per scheme, over the primitives in `primitives`."""
