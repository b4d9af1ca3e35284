"""Trimtab: adaptive gradient communication for data-parallel training."""
