"""What is a job doing while it trains? Read from the run's files, served by gRPC (`trimtab.trainer.v1`)."""
