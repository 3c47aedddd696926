"""Training of one agent of a text environment in SkyRL.

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


class ConversationEnv(BaseTextEnv):
    """SkyRL environment for one agent. Reference players of the environment, if any, act for the other agents.

    Args:
        env_config: "env" (registered id), "agent" (learner; default: first agent), "kwargs" (arguments of the
            environment).
        extras: row of the dataset: "seed" (default: 0), "max_turns" (a limit set by SkyRL's trainer), and the keys of
            `env_config`, because SkyRL's trainer passes settings only in rows.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] | None = None):
        super().__init__()
        row = extras or {}
        settings = {name: row.get(name) or env_config.get(name) for name in ("env", "agent", "kwargs")}
        if settings["env"] is None:
            raise ValueError('env_config or the row of the dataset must have "env", the id of an environment')
        self._talk = _talk(settings["env"], settings["agent"], settings["kwargs"] or {})
        self._seed = int(row.get("seed", 0))
        self._max_turns = row.get("max_turns")
        self._numbers: dict[str, float] = {}

    def init(self, prompt: ConversationType | None = None) -> tuple[ConversationType, dict[str, Any]]:
        """Start an episode. Return the prompt with the first observation as its end, and an empty dict."""
        self._numbers, self.turns = {}, 0
        given, opening = list(prompt or []), as_chat(self._talk.reset(seed=self._seed))
        return (given if given[-len(opening) :] == opening else [*given, *opening]), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
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
        self._talk.env.close()

    def get_metrics(self) -> dict[str, Any]:
        """Return the episode return and the sums of reward terms and metrics over the episode."""
        return {"return": self._talk.earned, **self._numbers}


def rows(env: str, seeds: Iterable[int], agent: str | None = None, **kwargs: Any) -> list[dict[str, Any]]:
    """Return dataset rows for SkyRL, one per seed. Save them as JSON Lines or Parquet for `data.train_data`.

    Args:
        env: registered id.
        agent: learner. None: first agent.
        kwargs: arguments of the environment.
    """
    talk = _talk(env, agent, kwargs)
    settings = {"env_class": "collm", "env": env, "agent": talk.env.agent, **({"kwargs": kwargs} if kwargs else {})}
    return [{"prompt": as_chat(talk.reset(seed=seed)), **settings, "seed": seed} for seed in seeds]


def _talk(env: str, agent: str | None, kwargs: Mapping[str, Any]) -> Conversation:
    return Conversation(SingleAgent(make(env, **kwargs), agent))
