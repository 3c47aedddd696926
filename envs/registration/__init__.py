"""Environments by id: the registry, this package's own entries, plugins, and mirrors in other libraries' registries."""
