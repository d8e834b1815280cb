"""Where participants live: Ray, plain processes, GPUs, memory."""
