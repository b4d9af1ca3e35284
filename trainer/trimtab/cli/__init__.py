"""The `trimtab` command: one file a subcommand, each with `add_arguments` and `run`."""
