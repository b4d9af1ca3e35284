"""Messages of a job's rank 0 to the operator, over gRPC, cleaned of what a tenant must not write."""
