"""What is asked for: the flags, and the plan of one run that follows from them."""
