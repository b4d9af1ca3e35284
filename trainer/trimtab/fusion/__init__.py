"""Which tensors share a buffer: one file per planner."""
