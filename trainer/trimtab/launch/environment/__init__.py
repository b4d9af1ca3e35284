"""What a launcher tells a trainer process by environment variables, and the secret by which ranks know each other."""
