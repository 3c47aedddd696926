"""The rules of `check_env`: one function per rule. The first line of its docstring states the rule."""
