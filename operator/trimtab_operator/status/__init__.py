"""The status of a TrainingJob: built as data, compared with what was written, and written."""
