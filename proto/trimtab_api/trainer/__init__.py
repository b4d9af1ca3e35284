"""The state of a training job."""
