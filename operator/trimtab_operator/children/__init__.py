"""The objects that a TrainingJob is turned into: a file for each kind, pure functions all."""
