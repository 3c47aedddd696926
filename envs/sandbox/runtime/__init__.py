"""Code that runs inside the jail. It cannot import other parts of the package, because it is started by its path."""
