"""What sparse collectives send: pairs of an index and a value."""
