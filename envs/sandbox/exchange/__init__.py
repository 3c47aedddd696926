"""Messages between the library and the jails."""
