"""Health and metrics of the operator itself."""
