"""Adapters to other libraries' trainers, one module a library; each needs its library, which nothing else here does."""
