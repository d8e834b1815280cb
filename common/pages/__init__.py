"""What is published: README.md and docs/, and report.html."""
