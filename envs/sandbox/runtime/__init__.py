"""Code that runs inside the jail. It imports no other part of the package, because it is started by its path."""
