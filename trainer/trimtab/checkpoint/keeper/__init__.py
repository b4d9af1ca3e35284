"""Checkpoint files in the memory of several hosts: the process that keeps them, and the store over all of these."""
