"""The plans that there are, and which of them is best."""
