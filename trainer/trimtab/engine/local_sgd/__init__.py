"""Rounds of local steps: what ranks average, and when."""
