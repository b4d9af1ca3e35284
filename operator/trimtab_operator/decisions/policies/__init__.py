"""The policies of a TrainingJob, as pure functions that are given the time."""
