"""Trimtab as a communication hook of torch's DistributedDataParallel."""
