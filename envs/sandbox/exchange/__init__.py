"""Messages between this library and sandboxed processes."""
