"""How indices and values are coded."""
