"""Ranks that start by fork from one process, which has imported torch already."""
