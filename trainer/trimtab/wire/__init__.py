"""Codes of indices and values, and messages of them."""
