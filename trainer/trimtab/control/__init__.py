"""The control loop: which plan to train under, decided while training.

Everything here is a decision, not an effect: measurements and the time of day come in as arguments, actions go out
as values, and the session carries them out. It runs on rank 0 only, starts no thread and draws no unseeded number.
"""
