"""TorchRL trains a whole team: a text environment as `EnvBase`, TorchRL's collector, REINFORCE on both writers.

    pip install torchrl
    python examples/torchrl_reinforce.py

`TextTeam` is the adapter, for any text environment: observations and actions are strings (`NonTensor`), rewards and
ends are tensors. The writers here are two small models that choose words. Prints the mean return before and after.
"""

from __future__ import annotations

import argparse

import torch
from pettingzoo import ParallelEnv
from tensordict import NonTensorData, TensorDict, TensorDictBase
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Categorical, Composite, NonTensor, Unbounded
from torchrl.envs import EnvBase
from torchrl.envs.utils import check_env_specs

from collm.envs import make
from collm.envs.writing.mini_rules import vocabulary

NUM_WORDS = {"writer_0": 8, "writer_1": 20}
ENDS = ("done", "terminated", "truncated")


class TextTeam(EnvBase):
    """A text environment in TorchRL; each agent has its own entry. Who has left keeps its last text and earns 0."""

    def __init__(self, env: ParallelEnv):
        super().__init__(device="cpu", batch_size=[])
        self.team = env
        self.names = list(env.possible_agents)
        ends = {end: Categorical(2, shape=(1,), dtype=torch.bool) for end in ENDS}
        # TorchRL makes up actions of its own while it checks an environment, so each text has an example.
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
        nobody = dict.fromkeys(self.names, False)
        return self._tensordict(None, nobody, nobody)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        live = list(self.team.agents)
        texts, rewards, terminations, truncations, _ = self.team.step({a: tensordict[a, "action"] for a in live})
        self._texts = {**self._texts, **texts}
        gone = dict.fromkeys(self.names, True)
        return self._tensordict(rewards, {**gone, **terminations}, {**dict.fromkeys(self.names, False), **truncations})

    def _tensordict(self, rewards: dict | None, terminated: dict, truncated: dict) -> TensorDictBase:
        result = TensorDict({}, [])
        for name in self.names:
            flags = (terminated[name] or truncated[name], terminated[name], truncated[name])
            entry = {end: torch.tensor([flag]) for end, flag in zip(ENDS, flags, strict=True)}
            entry["observation"] = NonTensorData(str(self._texts[name]))
            if rewards is not None:
                entry["reward"] = torch.tensor([float(rewards.get(name, 0.0))])
            result[name] = TensorDict(entry, [])
        for end in ENDS:
            result[end] = torch.stack([result[name, end] for name in self.names]).all(0)
        return result


class WordChooser(nn.Module):
    """Draws words, each with a weight of its own and one more if the post holds it."""

    def __init__(self, num_words: int):
        super().__init__()
        self.words = sorted(vocabulary())
        self.num_words = num_words
        self.own = nn.Parameter(torch.zeros(len(self.words)))
        self.in_post = nn.Parameter(torch.zeros(()))

    def distribution(self, holds: torch.Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.own + self.in_post * holds)

    def read(self, text: str) -> torch.Tensor:
        read = set(text.replace(".", " ").split())
        return torch.tensor([float(word in read) for word in self.words])


class Team(nn.Module):
    """Writes each agent's action, and what learning needs of how it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.writers = nn.ModuleDict({name: WordChooser(count) for name, count in NUM_WORDS.items()})

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        for name, writer in self.writers.items():
            holds = writer.read(tensordict[name, "observation"])
            drawn = writer.distribution(holds).sample((writer.num_words,))
            tensordict[name, "holds"], tensordict[name, "drawn"] = holds, drawn
            tensordict[name, "action"] = NonTensorData(" ".join(writer.words[number] for number in drawn))
        return tensordict


def main(updates: int, seed: int) -> tuple[float, float]:
    """Mean returns of the first and of the last tenth of the updates."""
    torch.manual_seed(seed)
    check_env_specs(TextTeam(make("collm/MiniWriting-v0")))
    team = Team()
    optimizer = torch.optim.Adam(team.parameters(), lr=0.05)
    env = TextTeam(make("collm/MiniWriting-v0"))
    env.set_seed(seed)
    returns = []
    settings = {"frames_per_batch": 32, "total_frames": 32 * updates, "auto_register_policy_transforms": False}
    for batch in Collector(env, team, **settings):
        reward = batch["next", "writer_0", "reward"].squeeze(-1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        loss = torch.zeros(())
        for name, writer in team.writers.items():
            distribution = writer.distribution(batch[name, "holds"].unsqueeze(1))
            loss = loss - (distribution.log_prob(batch[name, "drawn"]).sum(-1) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns.append(float(reward.mean()))
    tenth = max(1, updates // 10)
    before, after = sum(returns[:tenth]) / tenth, sum(returns[-tenth:]) / tenth
    print(f"torchrl REINFORCE on collm/MiniWriting-v0: {before:.3f} -> {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.updates, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
