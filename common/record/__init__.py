"""What is kept: rows, runs, files, the environment."""
