"""The rules of `check_env`, one function per rule; the docstring's first line is the rule."""
