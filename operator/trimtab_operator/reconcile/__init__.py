"""One pass over a TrainingJob: observe, decide, act."""
