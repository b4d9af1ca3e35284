"""What concerns one process: its messages to people, its exit handlers, its processors."""
