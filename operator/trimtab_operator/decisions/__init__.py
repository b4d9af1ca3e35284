"""Decisions on a TrainingJob: pure functions of the observed state and of the time."""
