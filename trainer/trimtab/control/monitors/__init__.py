"""What the controller watches: gain, network, guards, the model's own errors."""
