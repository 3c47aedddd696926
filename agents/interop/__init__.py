"""Adapters to other libraries, one module per library."""
