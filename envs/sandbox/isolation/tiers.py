"""Which isolation to use: the strongest that this machine is seen to offer, never a weaker one in silence.

A     namespaces, Landlock where there is any, seccomp, limits    most Linux, root or not
B     Landlock, seccomp, limits                                   where user namespaces are forbidden
C     seccomp without any call that takes a path, limits          only if asked for: nothing but preloaded modules
none  limits                                                      only if asked for: code that you trust
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from ..confinement.layout import layout
from ..errors import SandboxUnavailable
from ..settings import Settings
from ..workers.run import Broken
from ..workers.worker import Isolation, Plan, Worker
from . import probe

_HOW_TO: Final = (
    "A needs user namespaces (in Docker: --security-opt seccomp=unconfined; on Ubuntu 24.04: sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0; elsewhere: sysctl user.max_user_namespaces above 0). B needs "
    "Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK, lsm=landlock). All need seccomp and pidfd_open (Linux 5.3) on "
    "x86_64 or aarch64. isolation='none' runs code unconfined: only code you trust."
)
_log = logging.getLogger(__name__)


class Workshop:
    """Makes workers of one tier: the first choice is by trial, and every worker is tried again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.chosen: Isolation | None = None

    def make(self, *, is_judge: bool = False) -> Worker:
        """A worker that has been seen to hold.

        Raises:
            SandboxUnavailable: if no tier that may be used holds.
            Broken: if one did before, so that trying again may help.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(f"it needs Linux, not {sys.platform}: use a container or a virtual machine")
        reasons = []
        for isolation in self._candidates():
            worker, reason = self._try(isolation, is_judge)
            if worker is not None:
                self._choose(isolation)
                return worker
            reasons.append(f"{isolation}: {reason}")
        if self.chosen is not None:
            raise Broken("; ".join(reasons))
        raise SandboxUnavailable(f"no isolation holds here. {'; '.join(reasons)}. {_HOW_TO}")

    def _candidates(self) -> tuple[Isolation, ...]:
        if self.chosen is not None:
            return (self.chosen,)
        asked = self._settings.isolation
        return ("A", "B") if asked == "auto" else (asked,)

    def _try(self, isolation: Isolation, is_judge: bool) -> tuple[Worker | None, str]:
        settings = self._settings
        visible = layout(settings.packages)
        plan = Plan(isolation, visible, settings.all_preload, is_judge=is_judge, allow_threads=settings.allow_threads)
        try:
            worker = Worker(plan)
        except Broken as error:
            return None, str(error)
        try:
            found = [] if isolation == "none" else probe.holes(worker)
        except Broken as error:
            worker.close()
            return None, str(error)
        except BaseException:
            worker.close()
            raise
        if not found:
            return worker, ""
        worker.close()
        return None, f"code in it {', '.join(found)}"

    def _choose(self, isolation: Isolation) -> None:
        if self.chosen is None and isolation == "none":
            _log.warning("sandbox: isolation='none', so code runs with the rights of this process")
        elif self.chosen is None and isolation != "A":
            _log.info("sandbox: isolation %s", isolation)
        self.chosen = isolation
