"""Trimtab's operator: turns a TrainingJob into pods on Kubernetes."""
