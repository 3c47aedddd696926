"""The commands of `collm`: one module per command, named after it."""
