"""The benches' work on every host: whole steps, single collectives."""
