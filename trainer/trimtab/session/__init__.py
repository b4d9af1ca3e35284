"""What a training script calls: attach, and the session that it returns."""
