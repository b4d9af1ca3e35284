"""Which batches a rank trains on: loaders shared among ranks, the script's loops over them, batches given again."""
