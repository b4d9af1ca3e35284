"""ExDyna: one partition of the gradient for each rank, and a threshold that adapts."""
