"""What a plan would take: time, waiting and convergence."""
