"""The judge: adaptive beside the best static plan in hindsight, in simulation and in real runs (`trimtab judge`)."""

#: By which the random network is drawn, where nobody asks for another.
RANDOM_NETWORK_SEED = 20261122
