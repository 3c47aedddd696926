"""Train a team with TorchRL: a text environment as `EnvBase`, TorchRL's collector, and REINFORCE for both builders.

    pip install torchrl
    python examples/torchrl_reinforce.py

`TextTeam` adapts any text environment: observations and actions are strings. The builders of MiniBuild are two small
models that choose two words. The script prints the mean return before and after training.
"""

from __future__ import annotations

import argparse

import torch
from tensordict import NonTensorData, TensorDictBase
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs.utils import check_env_specs

from collm.agents.interop.torchrl import TextTeam
from collm.envs import make
from collm.envs.games.mini_build.rules import MATERIALS, PARTS

BUILDERS = ("builder_0", "builder_1")
NUM_WORDS = 2  # a part and its material


class WordChooser(nn.Module):
    """Policy that samples words with one logit per word, plus a shared weight for words that the prompt contains."""

    def __init__(self) -> None:
        super().__init__()
        self.words = [*PARTS, *MATERIALS]
        self.own = nn.Parameter(torch.zeros(len(self.words)))
        self.in_prompt = nn.Parameter(torch.zeros(()))

    def distribution(self, holds: torch.Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.own + self.in_prompt * holds)

    def read(self, text: str) -> torch.Tensor:
        read = set(text.replace(".", " ").split())
        return torch.tensor([float(word in read) for word in self.words])


class Team(nn.Module):
    """Module that writes each agent's action, and the inputs from which the action's log-probability is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.builders = nn.ModuleDict({name: WordChooser() for name in BUILDERS})

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        for name, builder in self.builders.items():
            holds = builder.read(tensordict[name, "observation"])
            drawn = builder.distribution(holds).sample((NUM_WORDS,))
            tensordict[name, "holds"], tensordict[name, "drawn"] = holds, drawn
            tensordict[name, "action"] = NonTensorData(" ".join(builder.words[number] for number in drawn))
        return tensordict


def build() -> TextTeam:
    """Build MiniBuild with one turn and a dense reward."""
    return TextTeam(make("collm/MiniBuild-v0", max_turns=1, reward="dense"))


def main(updates: int, seed: int) -> tuple[float, float]:
    """Train the team. Returns the mean returns of the first and of the last tenth of the updates."""
    torch.manual_seed(seed)
    check_env_specs(build())
    team = Team()
    optimizer = torch.optim.Adam(team.parameters(), lr=0.05)
    env = build()
    env.set_seed(seed)
    returns = []
    settings = {"frames_per_batch": 32, "total_frames": 32 * updates, "auto_register_policy_transforms": False}
    for batch in Collector(env, team, **settings):
        reward = batch["next", "builder_0", "reward"].squeeze(-1)
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        loss = torch.zeros(())
        for name, builder in team.builders.items():
            distribution = builder.distribution(batch[name, "holds"].unsqueeze(1))
            loss = loss - (distribution.log_prob(batch[name, "drawn"]).sum(-1) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns.append(float(reward.mean()))
    tenth = max(1, updates // 10)
    before, after = sum(returns[:tenth]) / tenth, sum(returns[-tenth:]) / tenth
    print(f"torchrl REINFORCE on collm/MiniBuild-v0: {before:.3f} -> {after:.3f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before, after = main(arguments.updates, arguments.seed)
    raise SystemExit(0 if after > before else "the return did not rise")
