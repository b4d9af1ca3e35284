"""Which k of n elements to send: one file per sparsifier."""
