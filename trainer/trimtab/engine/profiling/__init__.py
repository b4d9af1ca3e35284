"""Where the time of a step goes, and how the loss falls."""
