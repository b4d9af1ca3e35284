"""Ok-Topk: the k largest sums of all, by a sparse reduce-scatter."""
