"""What a training job is doing."""
