"""One agent of a text environment in SkyRL: `init` gives the conversation, `step` takes a reply, `rows` the data set.

skyrl_gym.register(id="collm", entry_point="collm.agents.interop.skyrl:ConversationEnv")
env = skyrl_gym.make("collm", env_config={"env": "collm/MiniBuild-v0"}, extras={"seed": 3})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from ...envs.core import as_chat
from ...envs.registration.registry import make
from ...envs.views import Conversation, SingleAgent

_SETTINGS = ("env", "agent", "kwargs")


class ConversationEnv(BaseTextEnv):
    """An episode of one agent, whose partners give reference replies where the environment knows them.

    Args:
        env_config: "env", a registered id; "agent", the learner (the first agent where it is left out); "kwargs",
            arguments of the environment.
        extras: a row of the dataset: "seed" of the episode (0 where it is left out); any of the settings above, as
            SkyRL's trainer has a configuration for its own environments alone; "max_turns", which the trainer adds:
            turns after which the episode is broken off (its own end where it is left out).
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] | None = None):
        super().__init__()
        row = extras or {}
        settings = {name: row.get(name) or env_config.get(name) for name in _SETTINGS}
        if settings["env"] is None:
            raise ValueError('neither env_config nor the row of the dataset has "env", the id of an environment')
        self._talk = _talk(settings["env"], settings["agent"], settings["kwargs"] or {})
        self._seed = int(row.get("seed", 0))
        self._max_turns = row.get("max_turns")
        self._numbers: dict[str, float] = {}

    def init(self, prompt: ConversationType | None = None) -> tuple[ConversationType, dict[str, Any]]:
        """The row's prompt, with what the agent reads first after it, unless it ends with that as those of `rows`."""
        self._numbers, self.turns = {}, 0
        given, opening = list(prompt or []), as_chat(self._talk.reset(seed=self._seed))
        return (given if given[-len(opening) :] == opening else [*given, *opening]), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play a turn with the agent's reply."""
        heard = self._talk.step(action)
        self.turns += 1
        for name, value in heard.numbers.items():
            self._numbers[name] = self._numbers.get(name, 0.0) + value
        return BaseTextEnvStepOutput(
            observations=as_chat(heard.messages),
            reward=heard.reward,
            done=heard.is_over or self.turns == self._max_turns,
            metadata=dict(heard.numbers),
        )

    def close(self) -> None:
        """Close the environment."""
        self._talk.env.close()

    def get_metrics(self) -> dict[str, Any]:
        """The return and the sums of the turns' terms and metrics."""
        return {"return": self._talk.earned, **self._numbers}


def rows(env: str, seeds: Iterable[int], agent: str | None = None, **kwargs: Any) -> list[dict[str, Any]]:
    """A dataset for SkyRL's trainer: a row per seed, whose prompt is what the agent reads first.

    Write them as lines of JSON or as Parquet, and name that file in `data.train_data`.

    Args:
        env: a registered id.
        seeds: of the episodes.
        agent: the learner. None: the first agent.
        kwargs: arguments of the environment.
    """
    talk = _talk(env, agent, kwargs)
    settings = {"env_class": "collm", "env": env, "agent": talk.env.agent, **({"kwargs": kwargs} if kwargs else {})}
    return [{"prompt": as_chat(talk.reset(seed=seed)), **settings, "seed": seed} for seed in seeds]


def _talk(env: str, agent: str | None, kwargs: Mapping[str, Any]) -> Conversation:
    return Conversation(SingleAgent(make(env, **kwargs), agent))
