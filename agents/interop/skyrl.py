"""One agent of a text environment in SkyRL-gym: `init` gives the conversation, `step` takes a reply.

skyrl_gym.register(id="collm", entry_point="collm.agents.interop.skyrl:ConversationEnv")
env = skyrl_gym.make("collm", env_config={"env": "collm/MiniBuild-v0"}, extras={"seed": 3})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput, ConversationType

from ...envs.core import as_chat
from ...envs.registration.registry import make
from ...envs.views import Conversation, SingleAgent


class ConversationEnv(BaseTextEnv):
    """An episode of one agent, whose partners give reference replies where the environment knows them.

    Args:
        env_config: "env", a registered id; "agent", the learner (the first agent where it is left out); "kwargs",
            arguments of the environment.
        extras: a row of the dataset: "seed" of the episode (0 where it is left out).
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any] | None = None):
        super().__init__()
        team = make(env_config["env"], **(env_config.get("kwargs") or {}))
        self._talk = Conversation(SingleAgent(team, env_config.get("agent")))
        self._seed = int((extras or {}).get("seed", 0))
        self._numbers: dict[str, float] = {}

    def init(self, prompt: ConversationType | None = None) -> tuple[ConversationType, dict[str, Any]]:
        """The row's prompt, with what the agent reads first after it."""
        self._numbers, self.turns = {}, 0
        return [*(prompt or []), *as_chat(self._talk.reset(seed=self._seed))], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Play a turn with the agent's reply."""
        heard = self._talk.step(action)
        self.turns += 1
        for name, value in heard.numbers.items():
            self._numbers[name] = self._numbers.get(name, 0.0) + value
        return BaseTextEnvStepOutput(
            observations=as_chat(heard.messages),
            reward=heard.reward,
            done=heard.is_over,
            metadata=dict(heard.numbers),
        )

    def close(self) -> None:
        """Close the environment."""
        self._talk.env.close()

    def get_metrics(self) -> dict[str, Any]:
        """The return and the sums of the turns' terms and metrics."""
        return {"return": self._talk.earned, **self._numbers}
