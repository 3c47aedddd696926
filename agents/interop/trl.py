"""Text environments in TRL's GRPOTrainer, which trains one model for one agent or for all agents (self-play).

* `reward_of` and `dataset_of`: for environments with one turn, with a reward function.
* `Episodes`: for environments with several turns, with TRL's `rollout_func`.
* `conversation_class`: for environments with several turns, with tool calls and TRL's `environment_factory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from pettingzoo import ParallelEnv

from ...envs.spaces import movers_of
from ...envs.views import Conversation, GymAsParallel, SingleAgent
from ...envs.views.conversation import text_of
from ..core import Completion
from ..encoding import Encoder, TokenRecord, end_ids_of


def dataset_of(env: SingleAgent, num_rows: int) -> Dataset:
    """Return a dataset of the first observations for seeds 0 to num_rows - 1, with columns "prompt" and "seed"."""
    return Dataset.from_list([{"prompt": str(env.reset(seed=seed)[0]), "seed": seed} for seed in range(num_rows)])


def reward_of(env: SingleAgent) -> Callable[..., list[float]]:
    """Return a reward function for `dataset_of`. The function raises `ValueError` if an episode has several turns."""

    def reward(completions: Sequence[str], seed: Sequence[int], **_: object) -> list[float]:
        rewards = []
        for completion, number in zip(completions, seed, strict=True):
            env.reset(seed=number)
            _, earned, is_terminated, is_truncated, _ = env.step(completion)
            if not (is_terminated or is_truncated):
                raise ValueError(f"{env.env} has several turns; pass rollout_func=Episodes(...) to the trainer instead")
            rewards.append(earned)
        return rewards

    return reward


@dataclass
class _Track:
    """Tokens of one agent in an episode."""

    observation: str
    ids: list[int]  # prompt, replies and later observations
    num_first: int  # tokens of the prompt, which is the observation before the first reply
    is_own: list[int] = field(default_factory=list)  # 1 for sampled tokens, else 0, after the prompt
    logprobs: list[float] = field(default_factory=list)
    earned: float = 0.0

    def write(self, ids: Sequence[int], logprobs: Sequence[float]) -> TokenRecord:
        """Append a reply, and return the token record that `Encoder.prompt` needs."""
        tokens = TokenRecord(np.asarray(self.ids), np.asarray(ids), True, self.observation)
        self.ids = [*self.ids, *ids]
        self.is_own += [1] * len(ids)
        self.logprobs += logprobs
        return tokens

    def read(self, encoder: Encoder, observation: str, last: Completion | None) -> None:
        """Append the observation before a reply."""
        ids, is_extension = encoder.prompt(observation, last)
        if last is None:
            self.ids, self.num_first, self.observation = ids.tolist(), len(ids), observation
            return
        if not is_extension:
            raise ValueError("TRL needs environments with append-only histories, but a history was rewritten")
        news = ids[len(self.ids) :].tolist()
        self.ids += news
        self.is_own += [0] * len(news)
        self.logprobs += [0.0] * len(news)
        self.observation = observation


@dataclass
class _Game:
    """Running episode, with the tokens of the agents for which the model acts."""

    env: ParallelEnv[str, Any, Any]
    tracks: dict[str, _Track]
    observations: dict[str, Any]
    infos: dict[str, dict[str, Any]]
    replies: dict[str, Completion] = field(default_factory=dict)  # last reply of each agent


class Episodes:
    """Episodes for `GRPOTrainer(rollout_func=episodes, reward_funcs=Episodes.reward, train_dataset=episodes.dataset)`.

    A completion contains all replies of one agent. The loss ignores the observations between the replies.

    A row of the dataset is one agent of the episode with one seed. If one call of TRL contains several agents of a
    seed, these agents share episodes. Otherwise each agent has separate episodes, in which the model also acts for the
    other agents. To get all agents into one call, set `shuffle_dataset=False` and a batch size that is a multiple of
    `num_generations` times the number of agents.

    Args:
        build: returns a `SingleAgent` view, or a parallel environment in which the model acts for all agents. It is
            called once per concurrent episode.
        num_rows: number of seeds, from 0. Rows with equal prompts are used in turn, for `num_generations` completions.
        is_chat: whether to format messages with the tokenizer's chat template. None: if the tokenizer has one.
    """

    def __init__(
        self,
        build: Callable[[], SingleAgent | ParallelEnv[str, Any, Any]],
        num_rows: int,
        *,
        is_chat: bool | None = None,
    ):
        self._build = build
        self._is_chat = is_chat
        self._envs = [_team(build())]
        self.num_played = 0  # episodes so far
        rows = [
            {"prompt": str(text), "seed": seed, "agent": agent}
            for seed in range(num_rows)
            for agent, text in self._envs[0].reset(seed=seed)[0].items()
        ]
        self.dataset = Dataset.from_list(rows)
        self._rows: dict[str, list[tuple[int, str]]] = {}  # TRL passes only the prompt, which several rows may have
        for row in rows:
            self._rows.setdefault(row["prompt"], []).append((row["seed"], row["agent"]))
        self._uses: Counter[str] = Counter()

    @staticmethod
    def reward(completions: Sequence[str], episode_return: Sequence[float], **_: object) -> list[float]:
        """Reward function for TRL: the episode return of each row's agent."""
        return list(episode_return)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Play episodes and return one agent's tokens for each prompt, as TRL's `rollout_func`."""
        tokenizer, model = trainer.processing_class, trainer.accelerator.unwrap_model(trainer.model)
        encoder = Encoder(tokenizer, is_chat=self._is_chat, end_ids=end_ids_of(model, tokenizer))
        seats = []
        for prompt in prompts:
            rows = self._rows[prompt]
            seats.append(rows[self._uses[prompt] // trainer.num_generations % len(rows)])
            self._uses[prompt] += 1
        numbered: Counter[tuple[int, str]] = Counter()
        places = []  # per row: seed, and index among the episodes with this seed
        for seed, agent in seats:
            places.append((seed, numbered[seed, agent]))
            numbered[seed, agent] += 1
        wanted = list(dict.fromkeys(places))
        self._envs += [_team(self._build()) for _ in range(len(wanted) - len(self._envs))]
        games = {place: _opened(env, encoder, place[0]) for place, env in zip(wanted, self._envs, strict=False)}
        while running := [game for game in games.values() if game.env.agents]:
            _play_turn(running, encoder, trainer)
        self.num_played += len(games)
        tracks = [games[place].tracks[agent] for place, (_, agent) in zip(places, seats, strict=True)]
        return {
            "prompt_ids": [track.ids[: track.num_first] for track in tracks],
            "completion_ids": [track.ids[track.num_first :] for track in tracks],
            "logprobs": [track.logprobs for track in tracks],
            "env_mask": [track.is_own for track in tracks],
            "episode_return": [track.earned for track in tracks],
        }


def _team(env: SingleAgent | ParallelEnv[str, Any, Any]) -> ParallelEnv[str, Any, Any]:
    return GymAsParallel(env) if isinstance(env, SingleAgent) else env


def _opened(env: ParallelEnv[str, Any, Any], encoder: Encoder, seed: int) -> _Game:
    tracks = {}
    observations, infos = env.reset(seed=seed)
    for agent, observation in observations.items():
        ids = encoder.prompt(observation)[0].tolist()
        tracks[agent] = _Track(observation, ids, len(ids))
    return _Game(env, tracks, observations, infos)


def _play_turn(games: Sequence[_Game], encoder: Encoder, trainer: Any) -> None:
    """Play one turn of all running episodes, with one model call for all agents."""
    seats = [(game, agent) for game in games for agent in movers_of(game.env.agents, game.infos)]
    for game, agent in seats:
        game.tracks[agent].read(encoder, game.observations[agent], game.replies.get(agent))
    samples = sample(trainer, [game.tracks[agent].ids for game, agent in seats], encoder.stop_ids) if seats else []
    replies: dict[int, dict[str, Completion]] = {id(game): {} for game in games}
    for (game, agent), (ids, logprobs) in zip(seats, samples, strict=True):
        text = encoder.text(ids, game.tracks[agent].ids)
        replies[id(game)][agent] = Completion(text, tokens=game.tracks[agent].write(ids, logprobs))
    for game in games:
        given = replies[id(game)]
        actions = {agent: reply.action for agent, reply in given.items()}
        game.observations, rewards, _, _, game.infos = game.env.step(actions)
        game.replies |= given
        for agent, reward in rewards.items():
            game.tracks[agent].earned += float(reward)


def sample(
    trainer: Any, prompts: Sequence[Sequence[int]], stop_ids: frozenset[int]
) -> list[tuple[list[int], list[float]]]:
    """Sample one completion per prompt from the trained model, with log-probabilities at the sampling temperature."""
    model, settings = trainer.accelerator.unwrap_model(trainer.model), trainer.generation_config
    inputs = trainer.processing_class.pad({"input_ids": list(prompts)}, padding_side="left", return_tensors="pt")
    was_training = model.training
    model.eval()
    with torch.no_grad():
        made = model.generate(
            **inputs.to(model.device),
            generation_config=settings,
            eos_token_id=sorted(stop_ids),
            return_dict_in_generate=True,
            output_scores=True,
        )
    model.train(was_training)
    logprobs = model.compute_transition_scores(made.sequences, made.scores, normalize_logits=True)
    found = []
    for ids, scores in zip(made.sequences[:, inputs["input_ids"].shape[1] :].tolist(), logprobs.tolist(), strict=True):
        end = next((place + 1 for place, index in enumerate(ids) if index in stop_ids), len(ids))
        found.append((ids[:end], scores[:end]))
    return found


def conversation_class(build: Callable[[], SingleAgent]) -> type:
    """Return a class for `GRPOTrainer(environment_factory=...)`, in which the model acts by calling the tool `write`.

    A row of the dataset has a "prompt" (messages, the last one from the user) and a "seed". The first observation is
    added to the prompt.
    """

    class Talk:  # TRL makes each public method a tool, so environments cannot be passed directly
        """One episode."""

        def __init__(self) -> None:
            self._talk = Conversation(build())

        def reset(self, seed: int | None = None, **row: object) -> str:
            """Start the episode with the row's seed."""
            return text_of(self._talk.reset(seed=seed))

        def write(self, text: str) -> str:
            """Write your text of this turn and read what came of it.

            Args:
                text: Your text.

            Returns:
                What you read next.
            """
            return "The episode is over." if self._talk.is_over else self._talk.step(text).text

        def get_reward(self) -> float:
            """Return the sum of rewards so far."""
            return self._talk.earned

    return Talk
