"""Joins a process to its job, started by ``trimtab run``, by its pod, or by a launcher that knows no jobs."""
