"""Screen, tables, charts, pictures."""
