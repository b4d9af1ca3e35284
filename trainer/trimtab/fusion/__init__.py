"""Which tensors share a buffer: one file per planner, by its name in `trimtab_api.catalogue.fusion`."""
