"""What keeps checkpoint files in memory."""
