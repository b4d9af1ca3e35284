"""`trimtab run`: a whole job on one machine."""
