"""The entry of a worker's pod on a cluster."""
