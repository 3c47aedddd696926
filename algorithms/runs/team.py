"""Teams of trained policies, which act, are evaluated and are saved together.

    team = load_team("runs/first")
    actions = team.act(observations)

`load_team` loads the policies from the folder of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._errors import UserError
from ..._ownership import new_folder
from ...agents.core import Completion, Learnable, Policy, Request, act_all
from ...envs.spaces import movers_of
from ..distribution.group import current
from ..rollout.plays import masks_of
from .api import Environment, Run, evaluate, load_run, torch_threads
from .evaluation import EvaluationResult
from .files import explained


class Team(Mapping[str, Policy]):
    """Policies of a run: a mapping with agents as keys, and methods that use all policies.

        team = collm.load_team("runs/first")
        env = collm.make("collm/MiniWriting-v2")
        observations, infos = env.reset(seed=0)
        while env.agents:
            actions = team.act(observations, infos)
            observations, rewards, terminations, truncations, infos = env.step(actions)

    `load_team` loads a team from a run's folder. `Team(run)` is the team of the result of `train`.
    `act` and `save` correspond to `predict` and `save` of models in Stable-Baselines3.

    Args:
        run: run whose policies and settings the team uses.
    """

    def __init__(self, run: Run):
        self.run = run
        self._previous: dict[str, Completion] = {}  # last completion of each agent
        self._num_calls = 0

    def __getitem__(self, agent: str) -> Policy:
        return self.run.policies[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self.run.policies)

    def __len__(self) -> int:
        return len(self.run.policies)

    def __repr__(self) -> str:
        return f"Team({', '.join(self)}; {self.run!r})"

    def act(
        self,
        observations: Mapping[str, Any],
        infos: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        greedy: bool = False,
        seed: int | None = None,
    ) -> dict[str, Any]:
        """Return the action of each agent, for `env.step`. Agents with one model decode in one batch.

        An observation of a text environment is the agent's whole history, so the team needs no `reset`.

        Args:
            observations: dict of agents that act: text history, or array of the observation space's shape.
            infos: infos of the same step, whose `action_mask` marks legal actions, and whose `waits` marks agents that
                do not act. None: all agents act, and all actions are legal.
            greedy: decode greedily instead of sampling.
            seed: seed of the samples of this call. None: new random numbers in each call; the calls of a new team have
                the same random numbers.

        Returns:
            Dict with the agents that act: completion text, or action of the action space.

        Raises:
            UserError: if `observations` is not a dict, or the team has no policy for an agent.
        """
        if not isinstance(observations, Mapping):
            raise UserError(
                f"observations must be a dict with agents as keys, got {type(observations).__name__}; "
                "env.reset() returns the pair observations, infos"
            )
        if unknown := [agent for agent in observations if agent not in self]:
            raise UserError(f"the team has no policy for {unknown[0]!r}; its agents are {', '.join(self)}")
        masks, movers = masks_of(infos or {}), movers_of(observations, infos or {})
        key, turn = (0, self._num_calls) if seed is None else (seed, 0)
        requests = [
            Request(agent, observations[agent], (key, 0, number, turn), self._previous.get(agent), masks.get(agent))
            for number, agent in enumerate(self)
            if agent in movers
        ]
        for policy in dict.fromkeys(self[request.agent] for request in requests):
            policy.make_ready(current())
        with torch_threads(self.run.experiment.model, None):
            completions = act_all(self, requests, greedy=greedy)
        self._num_calls += 1
        decided = {request.agent: completion for request, completion in zip(requests, completions, strict=True)}
        self._previous |= decided
        return {agent: decided[agent].action for agent in observations if agent in decided}

    def evaluate(
        self,
        env: Environment | None = None,
        *,
        num_episodes: int = 100,
        greedy: bool = False,
        split: str = "test",
        seeds: Sequence[int] | None = None,
        **env_kwargs: Any,
    ) -> EvaluationResult:
        """Evaluate the team on held-out tasks, as `collm.evaluate` does.

        Args:
            env: environment with the same agents. None: the environment of training.
            num_episodes: number of tasks. The tasks and their order are fixed.
            greedy: decode greedily instead of sampling.
            split: split of the environment's tasks, if the environment has splits.
            seeds: seeds of the tasks, instead of `num_episodes`.
            env_kwargs: environment arguments that differ from training.
        """
        return evaluate(self.run, num_episodes, greedy=greedy, split=split, env=env, seeds=seeds, **env_kwargs)

    def save(self, directory: str | Path) -> Path:
        """Write the model of each agent into a subfolder with the agent's name, and return the folder.

        transformers loads a subfolder with `AutoModelForCausalLM.from_pretrained` (peft, for adapters), and collm with
        `model="FOLDER/agent"`. Policies without weights, such as scripted partners, are left out.

        Args:
            directory: folder that does not exist or is empty. Nothing is overwritten.

        Raises:
            UserError: if the folder contains files, or no policy of the team has weights.
        """
        directory = Path(directory)
        models = {agent: policy for agent, policy in self.items() if isinstance(policy, Learnable)}
        if not models:
            raise UserError(f"the team {', '.join(self)} has no model to save; its policies have no weights")
        with explained(directory), new_folder(directory) as new:
            for agent, model in models.items():
                model.save(new / agent)
        return directory


def load_team(
    directory: str | Path, *, env: Environment | None = None, device: str | None = None, trust: bool = False
) -> Team:
    """Load the team of a run: a mapping with agents as keys, which also acts, is evaluated and is saved.

    Args:
        directory: folder of the run.
        env: replaces the training environment. Required if the training environment has no importable id.
        device: device of the policies. None: the run's setting.
        trust: allow settings that refer to code, servers, or files outside the folder; see docs/threat_model.md.
    """
    return Team(load_run(directory, env=env, device=device, trust=trust))
