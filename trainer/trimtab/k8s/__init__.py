"""Jobs on a cluster, as its API server tells of them."""
