"""What a training state is made of, and how it is kept: in memory for trials."""
