"""The status of a job while it trains, read from the run's files and served by gRPC (`trimtab.trainer.v1`)."""
