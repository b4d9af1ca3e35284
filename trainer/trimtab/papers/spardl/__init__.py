"""SparDL: Spar-Reduce-Scatter and Spar-All-Gather."""
