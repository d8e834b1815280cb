"""Pictures, each with the table of what it shows."""
