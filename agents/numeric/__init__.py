"""Policies and critics for vector observations."""
