"""Text environments in TRL's GRPOTrainer: a reward function, whole episodes, or a tool to write with.

TRL trains one model: in one agent's seat, its partners played by given policies as in `SingleAgent`, or in every seat.
Which of the three:

* `reward_of` and `dataset_of`: games of one turn; nothing experimental, TRL generates.
* `Episodes`: games of several turns, with any model, in one seat or in all (self-play); TRL's `rollout_func`.
* `conversation_class`: games of several turns, with a model that calls tools; TRL's `environment_factory`.
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

from ...envs.views import Conversation, GymAsParallel, SingleAgent
from ...envs.views.conversation import text_of
from ..core import Completion
from ..encoding import Encoder, TokenRecord


def dataset_of(env: SingleAgent, num_rows: int) -> Dataset:
    """What the agent reads first in the episodes of the first seeds: the columns "prompt" and "seed"."""
    return Dataset.from_list([{"prompt": str(env.reset(seed=seed)[0]), "seed": seed} for seed in range(num_rows)])


def reward_of(env: SingleAgent) -> Callable[..., list[float]]:
    """The reward of a completion, in a game of one turn, as a reward function for a dataset of `dataset_of`.

    It plays the row's episode again with the completion in it.

    Raises:
        ValueError: when called, if the game goes on after the completion.
    """

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
    """What the model reads and writes in one seat of an episode."""

    observation: str
    ids: list[int]  # all that was read and written so far
    num_first: int  # tokens before the model's first word
    is_own: list[int] = field(default_factory=list)  # of the rest: 1 for the model's tokens, 0 for what it read
    logprobs: list[float] = field(default_factory=list)
    earned: float = 0.0

    def write(self, ids: Sequence[int], logprobs: Sequence[float]) -> TokenRecord:
        """Append a reply; returns what the encoder reads on from."""
        tokens = TokenRecord(np.asarray(self.ids), np.asarray(ids), True, self.observation)
        self.ids = [*self.ids, *ids]
        self.is_own += [1] * len(ids)
        self.logprobs += logprobs
        return tokens

    def read(self, encoder: Encoder, observation: str, last: Completion) -> None:
        """Append what came after the reply."""
        ids, is_extension = encoder.prompt(observation, last)
        if not is_extension:
            raise ValueError(
                "the environment rewrote a history, which one row of tokens cannot show; set it up so that histories "
                "only grow"
            )
        news = ids[len(self.ids) :].tolist()
        self.ids += news
        self.is_own += [0] * len(news)
        self.logprobs += [0.0] * len(news)
        self.observation = observation


@dataclass
class _Game:
    """An episode under way: the team, and the seats that the model plays."""

    env: ParallelEnv[str, Any, Any]
    tracks: dict[str, _Track]


class Episodes:
    """Whole episodes for `GRPOTrainer(rollout_func=episodes, reward_funcs=Episodes.reward, train_dataset=...)`.

    The model plays one agent of the team, whose partners are given policies, or all of them: self-play of one model,
    which learns from every seat. A completion is the model's replies in one seat with what it read in between, which
    the loss leaves out. Histories are never tokenized anew, and nobody's text becomes a control token (`Encoder`).

    A row of the dataset is one seat of one seed's episode; TRL's groups are rollouts of one row. Rows of several seats
    of a seed that TRL asks for together are the seats of the same episodes; `shuffle_dataset=False` and a batch of
    `num_generations` times the number of seats, or a multiple, keep them together. A seat asked for alone is played in
    an episode of its own, with the same model in the other seats.

    Args:
        build: makes the agent's view of its team (`SingleAgent`), or a team that the model plays alone (a parallel
            environment); called once for each episode that runs at the same time.
        num_rows: episodes to train on, the seeds from 0 up. The rows of a group share prompt and seed; of two rows
            with the same first prompt the first one is played.
        is_chat: whether to feed messages through the tokenizer's chat template.

    Attributes:
        num_played: episodes that were played so far.
    """

    def __init__(
        self, build: Callable[[], SingleAgent | ParallelEnv[str, Any, Any]], num_rows: int, *, is_chat: bool = False
    ):
        self._build = build
        self._is_chat = is_chat
        self._envs = [_team(build())]
        self.num_played = 0
        rows = [
            {"prompt": str(text), "seed": seed, "agent": agent}
            for seed in range(num_rows)
            for agent, text in self._envs[0].reset(seed=seed)[0].items()
        ]
        self.dataset = Dataset.from_list(rows)
        self._rows: dict[str, tuple[int, str]] = {}
        for row in rows:
            self._rows.setdefault(row["prompt"], (row["seed"], row["agent"]))

    @staticmethod
    def reward(completions: Sequence[str], episode_return: Sequence[float], **_: object) -> list[float]:
        """The return of each row's seat, as a reward function."""
        return list(episode_return)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """What TRL asks of a `rollout_func`: one seat of an episode per prompt."""
        encoder = Encoder(trainer.processing_class, is_chat=self._is_chat)
        seats = [self._rows[prompt] for prompt in prompts]
        numbered: Counter[tuple[int, str]] = Counter()
        places = []  # of each row: its seed, and which of the episodes of that seed
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
    for agent, observation in env.reset(seed=seed)[0].items():
        ids = encoder.prompt(observation)[0].tolist()
        tracks[agent] = _Track(observation, ids, len(ids))
    return _Game(env, tracks)


def _play_turn(games: Sequence[_Game], encoder: Encoder, trainer: Any) -> None:
    """A turn of all games: one call of the model for all seats whose reply is awaited."""
    seats = [(game, agent) for game in games for agent in game.env.agents]
    samples = sample(trainer, [game.tracks[agent].ids for game, agent in seats], encoder.stop_ids)
    replies: dict[int, dict[str, Completion]] = {id(game): {} for game in games}
    for (game, agent), (ids, logprobs) in zip(seats, samples, strict=True):
        tokens = game.tracks[agent].write(ids, logprobs)
        replies[id(game)][agent] = Completion(encoder.text(ids), tokens=tokens)
    for game in games:
        given = replies[id(game)]
        said = {agent: reply.action for agent, reply in given.items()}
        observations, rewards, terminations, truncations, _ = game.env.step(said)
        for agent, reply in given.items():
            game.tracks[agent].earned += float(rewards[agent])
            if not (terminations[agent] or truncations[agent]):
                game.tracks[agent].read(encoder, observations[agent], reply)


def sample(
    trainer: Any, prompts: Sequence[Sequence[int]], stop_ids: frozenset[int]
) -> list[tuple[list[int], list[float]]]:
    """One completion per prompt by the model in training, with its tokens' log-probabilities, temperature included."""
    model, settings = trainer.accelerator.unwrap_model(trainer.model), trainer.generation_config
    length = max(map(len, prompts))
    ids = torch.full((len(prompts), length), settings.pad_token_id, device=model.device)
    is_read = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.tensor(prompt)
        is_read[row, length - len(prompt) :] = 1
    was_training = model.training
    model.eval()
    with torch.no_grad():
        made = model.generate(
            input_ids=ids,
            attention_mask=is_read,
            generation_config=settings,
            eos_token_id=sorted(stop_ids),
            return_dict_in_generate=True,
            output_scores=True,
        )
    model.train(was_training)
    logprobs = torch.stack(made.scores, dim=1).float().log_softmax(-1)
    written = made.sequences[:, length:]
    chosen = logprobs.gather(-1, written.unsqueeze(-1)).squeeze(-1)
    found = []
    for row, own in enumerate(written.tolist()):
        end = next((place + 1 for place, index in enumerate(own) if index in stop_ids), len(own))
        found.append((own[:end], chosen[row, :end].tolist()))
    return found


def conversation_class(build: Callable[[], SingleAgent]) -> type:
    """A class for `GRPOTrainer(environment_factory=...)`, whose model plays by calling the tool `write`.

    A row of the dataset has a "prompt", as messages that end with the user's, and a "seed"; what the agent reads first
    is added to the prompt. The environments' own classes do not fit there, since TRL makes a tool of every public
    method.

    Args:
        build: makes the agent's view of its team.
    """

    class Talk:
        """One episode."""

        def __init__(self) -> None:
            self._talk = Conversation(build())

        def reset(self, seed: int | None = None, **row: object) -> str:
            """Start the episode of a row of the dataset."""
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
            """The return so far."""
            return self._talk.earned

    return Talk
