"""What the benches run on every host: whole steps, single collectives."""
