"""Who starts the trainers, and what they are told: the local launcher, and the environment that any launcher sets."""
