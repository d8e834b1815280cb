"""What users see of a profile."""
