"""Adapters to other libraries' trainers, one module per library, which alone needs that library."""
