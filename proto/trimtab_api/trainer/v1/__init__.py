"""Version 1 of the trainer status service: `status_pb2`, `status_pb2_grpc`."""
