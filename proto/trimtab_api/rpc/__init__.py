"""gRPC between processes: certificates, channels, addresses."""
