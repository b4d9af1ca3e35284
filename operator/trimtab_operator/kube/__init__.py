"""Access to the API server: requests, watches, leadership, events. Nothing here decides about a job."""
