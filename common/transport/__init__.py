"""What several scripts build their transports from, and the proofs of the way that bytes took."""
