"""Faults of the executor, as opposed to faults of the code that it runs."""


class SandboxError(RuntimeError):
    """The executor failed, so nothing is known about the code: never to be scored as a wrong answer."""


class SandboxUnavailable(SandboxError):
    """This machine offers no isolation that holds; the message says what each kind lacks."""
