"""gTopk: the k largest sums, along a binomial tree."""
