"""collm: multi-agent text environments, and trainers for teams of language models.

    import collm

    env = collm.make("collm/MiniWriting-v2")
    run = collm.train("maac", env="collm/MiniWriting-v2", num_updates=50)
    print(run.evaluate().team_return)

Exports are imported on first use. Environments and the list of algorithms therefore work without torch.
"""

from typing import TYPE_CHECKING, Any

from ._lazy import attach

if TYPE_CHECKING:
    from . import agents as agents
    from . import algorithms as algorithms
    from . import envs as envs
    from .algorithms.registry import register_algorithm as register_algorithm
    from .algorithms.runs.api import evaluate as evaluate
    from .algorithms.runs.api import train as train
    from .algorithms.runs.team import Team as Team
    from .algorithms.runs.team import load_team as load_team
    from .envs import check_env as check_env
    from .envs import make as make
    from .envs import register as register

    __version__: str

if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name
    _attribute, _names, __all__ = attach(__name__, __file__)
    __all__ += ["__version__"]

    def __getattr__(name: str) -> Any:
        if name != "__version__":
            return _attribute(name)
        from importlib.metadata import version  # imported here, because this import is slow

        return version("collm")

    def __dir__() -> list[str]:
        return [*_names(), "__version__"]
