"""Trimtab's network monitor: measures the links of a job and serves what it found."""
