"""Gradients that arrive during the next forward pass."""
