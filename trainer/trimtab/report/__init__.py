"""What a reader learns from a run's files: live progress, the summary, the table, the report."""
