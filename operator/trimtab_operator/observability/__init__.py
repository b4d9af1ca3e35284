"""What the operator tells about itself: health and metrics."""
