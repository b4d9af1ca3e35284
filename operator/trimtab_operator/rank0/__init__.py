"""What rank 0 of a job tells the operator, over gRPC, and what of it may be believed."""
