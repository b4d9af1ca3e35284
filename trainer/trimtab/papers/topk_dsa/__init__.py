"""TopkDSA of SparCML: sums by ranges of indices."""
