"""Messages among the ranks of a group: sockets, GPUs, and the collectives that are built of them."""
