"""When an optimizer steps, and what holds its step back."""
