"""Starts the trainers and looks after them: the local launcher, the entry of a pod, and joining under either."""
