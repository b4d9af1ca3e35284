"""The judge: adaptive beside the best static plan in hindsight, in simulation and in real runs (`trimtab judge`)."""
