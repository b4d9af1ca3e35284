"""What a job is doing, told while it trains (`trimtab.trainer.v1`): read from the run's files, served by gRPC."""
