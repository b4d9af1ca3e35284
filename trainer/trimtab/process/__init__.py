"""The process itself: its messages to people, its exit handlers, its processors."""
