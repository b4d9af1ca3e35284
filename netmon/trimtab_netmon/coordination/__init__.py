"""Coordination of tests: which rank measures which link, when, and the resulting estimates."""
