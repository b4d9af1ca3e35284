"""Each directed link: as data, in messages, and as a value to wait for."""
