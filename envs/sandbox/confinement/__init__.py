"""Files and system calls that sandboxed code may use."""
