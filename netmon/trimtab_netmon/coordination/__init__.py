"""Which rank measures which link, when, and what the links are taken to be like."""
