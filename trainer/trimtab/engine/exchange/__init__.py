"""Buckets on their way: what is sent when, what ranks agree on, what comes back."""
