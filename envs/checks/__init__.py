"""Rules of `check_env`: one function per rule, whose docstring states the rule."""
