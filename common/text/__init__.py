"""What is printed: columns, tables, sentences."""
