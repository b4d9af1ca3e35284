"""The judge: adaptive beside the best static plan in hindsight, in simulation and in real runs (`trimtab judge`)."""

#: The default seed of the random network.
RANDOM_NETWORK_SEED = 20261122
