"""Numbers from records."""
