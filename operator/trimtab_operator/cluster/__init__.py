"""How the operator talks to the API server: requests, watches, leadership. Nothing here knows what a TrainingJob is."""
