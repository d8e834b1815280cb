"""What moves: messages, who reads what, at which sizes. Knows neither torch nor Ray."""
