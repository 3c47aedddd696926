"""What runs inside the jail. Self-contained on purpose: it is started by path, without the rest of the package."""
