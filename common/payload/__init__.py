"""The bytes: made, stamped, read, checked, on both ends of an edge."""
