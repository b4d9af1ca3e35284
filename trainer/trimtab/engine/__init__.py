"""What is a training step? From the gradients that backward leaves to what the optimizer did, on every rank alike."""
