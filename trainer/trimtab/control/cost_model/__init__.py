"""The cost of a plan: time, waiting and convergence."""
