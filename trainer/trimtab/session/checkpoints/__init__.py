"""Checkpoints of a session: a job's own, of its exchange, and of how far its loops have come."""
