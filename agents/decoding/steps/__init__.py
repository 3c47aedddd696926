"""Decoding steps that read and draw on the device: kernel by kernel, or recorded in static shapes and done again."""
