"""The network as monitors measure it."""
