"""Trimtab's contracts: gRPC stubs, TrainingJob types, units and user-facing errors."""
