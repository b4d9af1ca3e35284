"""ARC-Top-K (arXiv 2510.26709)."""
