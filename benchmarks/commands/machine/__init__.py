"""Commands about this machine: its devices, memory and speed."""
