"""Files and system calls that a jail allows."""
