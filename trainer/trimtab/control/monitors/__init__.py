"""The controller's watches: gain, network, guards, the model's own errors."""
