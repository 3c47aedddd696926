"""The rules of `check_env`, one function a rule; the docstring's first line is the rule."""
