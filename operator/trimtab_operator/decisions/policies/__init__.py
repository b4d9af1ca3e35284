"""Each policy of a TrainingJob: a file, a pure function, the time handed in."""
