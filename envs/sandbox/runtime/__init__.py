"""Code that runs in sandboxed processes. It is started by its path and cannot import other parts of the package."""
