"""Rendezvous: ranks find each other, and prove that they belong to one job."""
