"""Version 1 of the monitor's services: `netmon_pb2`, `netmon_pb2_grpc`."""
