"""What is known of each directed link: as data, in messages, and as a value to wait for."""
