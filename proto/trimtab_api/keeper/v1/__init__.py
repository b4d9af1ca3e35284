"""Version 1 of the keeper service: `keeper_pb2`, `keeper_pb2_grpc`."""
