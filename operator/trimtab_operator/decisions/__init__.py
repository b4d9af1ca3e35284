"""What is to be done about a TrainingJob: pure functions of what was observed, and of the time."""
