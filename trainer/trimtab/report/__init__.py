"""Reads a run's files for people: live progress, the summary, the table, the report."""
