"""Models and data to train: small real ones that ship with a dependency."""
