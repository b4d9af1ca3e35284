"""US-Byte (TPDS 2024): buckets of unequal size."""
