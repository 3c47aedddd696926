"""Code that runs inside the jail. It imports nothing of the rest of the package, because it is started by path."""
