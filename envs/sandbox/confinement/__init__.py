"""What a jailed process may see and call: its file system, and its system calls."""
