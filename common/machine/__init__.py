"""What the machine allows, and what else it did meanwhile: measured beside every run."""
