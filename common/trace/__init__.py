"""When what was done, in each process."""
