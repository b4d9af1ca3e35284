"""The monitor as a process: what it starts, and the gRPC services that it answers."""
