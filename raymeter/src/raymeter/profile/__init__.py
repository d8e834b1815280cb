"""What the recorded events say of the program: its processes, tasks, messages, waits and steps."""
