"""The other monitors of the job: their addresses, and channels to them."""
