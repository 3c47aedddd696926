"""Text environments in TorchRL: a team as an `EnvBase`, or one agent as a transform of `ChatEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pettingzoo import ParallelEnv
from tensordict import NonTensorData, TensorDict, TensorDictBase
from torchrl.data import Categorical, Composite, NonTensor, Unbounded
from torchrl.data.llm import History
from torchrl.envs import EnvBase, Transform

from ...envs.core import as_chat
from ...envs.views import Conversation, SingleAgent

_ENDS = ("done", "terminated", "truncated")


class TextTeam(EnvBase):
    """TorchRL environment of a team, with an entry per agent, such as `(agent, "observation")`.

    Observations and actions are strings (`NonTensor`); rewards and done flags are tensors. Agents that have left keep
    their last observation and have reward 0.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__(device="cpu", batch_size=[])
        self.team = env
        self.names = list(env.possible_agents)
        ends = {end: Categorical(2, shape=(1,), dtype=torch.bool) for end in _ENDS}
        # `check_env_specs` samples actions from the spec, which needs example data.
        self.observation_spec = Composite({name: Composite(observation=NonTensor(())) for name in self.names})
        self.action_spec = Composite({name: Composite(action=NonTensor((), example_data="")) for name in self.names})
        self.reward_spec = Composite({name: Composite(reward=Unbounded((1,))) for name in self.names})
        self.done_spec = Composite({**{name: Composite(**ends) for name in self.names}, **ends})
        self._next_seed: int | None = None
        self._texts: dict[str, str] = {}

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: object) -> TensorDictBase:
        self._texts, _ = self.team.reset(seed=self._next_seed)
        self._next_seed = None
        flags = dict.fromkeys(self.names, False)
        return self._tensordict(None, flags, flags)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        live = list(self.team.agents)
        texts, rewards, terminations, truncations, _ = self.team.step({a: tensordict[a, "action"] for a in live})
        self._texts = {**self._texts, **texts}
        gone = dict.fromkeys(self.names, True)
        return self._tensordict(rewards, {**gone, **terminations}, {**dict.fromkeys(self.names, False), **truncations})

    def _tensordict(
        self, rewards: Mapping[str, float] | None, terminated: Mapping[str, bool], truncated: Mapping[str, bool]
    ) -> TensorDictBase:
        result = TensorDict({}, [])
        for name in self.names:
            flags = (terminated[name] or truncated[name], terminated[name], truncated[name])
            entry: dict[str, Any] = {end: torch.tensor([flag]) for end, flag in zip(_ENDS, flags, strict=True)}
            entry["observation"] = NonTensorData(str(self._texts[name]))
            if rewards is not None:
                entry["reward"] = torch.tensor([float(rewards.get(name, 0.0))])
            result[name] = TensorDict(entry, [])
        for end in _ENDS:
            result[end] = torch.stack([result[name, end] for name in self.names]).all(0)
        return result


class PlayGame(Transform):
    """Transform for one agent: `ChatEnv(batch_size=(1,)).append_transform(PlayGame(env))`.

    A step sends the policy's last message to the environment and appends the observation to the history.

    Args:
        env: single-agent view of an environment.
        seed: seed of the first episode. Later episodes continue the random stream of this seed.
    """

    def __init__(self, env: SingleAgent, seed: int = 0):
        super().__init__()
        self.game = Conversation(env)
        self._next_seed: int | None = seed

    def _reset_env_preprocess(self, tensordict: TensorDictBase | None) -> TensorDictBase:
        if self.parent.batch_size != (1,):
            raise ValueError(f"PlayGame runs one episode; give ChatEnv batch_size=(1,), not {self.parent.batch_size}")
        opening = History.from_chats([as_chat(self.game.reset(seed=self._next_seed))])
        self._next_seed = None
        return TensorDict({self.parent.base_env.data_key: opening}, batch_size=(1,))

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        history = next_tensordict["history"].prompt
        heard = self.game.step(str(history[0, -1].content))
        if heard.messages:
            read = History.from_chats([as_chat(heard.messages)])
            next_tensordict["history"].prompt = history.extend(read, inplace=False, dim=-1)
        flags = (heard.is_over, heard.is_terminated, heard.is_truncated)
        for end, flag in zip(_ENDS, flags, strict=True):
            next_tensordict[end] = torch.tensor([[flag]])
        next_tensordict["reward"] = torch.tensor([[heard.reward]])
        return next_tensordict

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        """Add the reward to the reward spec, because `ChatEnv` has no reward."""
        reward_spec["reward"] = Unbounded((*reward_spec.shape, 1))
        return reward_spec
