"""The monitor as a process, with the gRPC services that it answers."""
