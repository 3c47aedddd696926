"""Which isolation a machine offers, and whether it holds."""
