"""The environment variables by which launchers and trainers talk, and the secret by which ranks know each other."""
