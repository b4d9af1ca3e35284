"""What a TrainingJob is turned into: each kind of object a file, each a pure function."""
