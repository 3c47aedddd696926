"""One agent of a text environment in TRL's GRPOTrainer: a reward function, whole episodes, or a tool to write with.

TRL trains one model; the partners are played by given policies, as in `SingleAgent`. Which of the three:

* `reward_of` and `dataset_of`: games of one turn; nothing experimental, TRL generates.
* `Episodes`: games of several turns, with any model; TRL's `rollout_func`.
* `conversation_class`: games of several turns, with a model that calls tools; TRL's `environment_factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ...envs.core import messages_of
from ...envs.views import SingleAgent
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
class _Episode:
    env: SingleAgent
    observation: str
    prompt_ids: list[int]  # all that the model has read and written so far
    num_first: int  # tokens before its first word
    is_own: list[int] = field(default_factory=list)  # of the rest: 1 for the model's tokens, 0 for what it read
    logprobs: list[float] = field(default_factory=list)
    earned: float = 0.0
    is_over: bool = False


class Episodes:
    """Whole episodes for `GRPOTrainer(rollout_func=episodes, reward_funcs=Episodes.reward, train_dataset=...)`.

    A completion is the model's replies with what it read in between, which the loss leaves out. Histories are never
    tokenized anew, and nobody's text becomes a control token (`Encoder`).

    Args:
        build: makes the agent's view of its team, once for each episode that runs at the same time.
        num_rows: episodes to train on, the seeds from 0 up. The rows of a group share prompt and seed; of two seeds
            with the same first prompt the first one is played.
        is_chat: whether to feed messages through the tokenizer's chat template.
    """

    def __init__(self, build: Callable[[], SingleAgent], num_rows: int, *, is_chat: bool = False):
        self._build = build
        self._is_chat = is_chat
        self._envs = [build()]
        self.dataset = dataset_of(self._envs[0], num_rows)
        self._seeds: dict[str, int] = {}
        for row in self.dataset:
            self._seeds.setdefault(row["prompt"], row["seed"])

    @staticmethod
    def reward(completions: Sequence[str], episode_return: Sequence[float], **_: object) -> list[float]:
        """The return of each episode, as a reward function."""
        return list(episode_return)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """What TRL asks of a `rollout_func`: one episode per prompt."""
        encoder = Encoder(trainer.processing_class, is_chat=self._is_chat)
        self._envs += [self._build() for _ in range(len(prompts) - len(self._envs))]
        episodes = []
        for env, prompt in zip(self._envs, prompts, strict=False):
            observation, _ = env.reset(seed=self._seeds[prompt])
            ids = encoder.prompt(observation)[0].tolist()
            episodes.append(_Episode(env, observation, ids, len(ids)))
        while running := [episode for episode in episodes if not episode.is_over]:
            replies = sample(trainer, [episode.prompt_ids for episode in running], encoder.stop_ids)
            for episode, (ids, logprobs) in zip(running, replies, strict=True):
                _play(episode, encoder, ids, logprobs)
        return {
            "prompt_ids": [episode.prompt_ids[: episode.num_first] for episode in episodes],
            "completion_ids": [episode.prompt_ids[episode.num_first :] for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes],
            "env_mask": [episode.is_own for episode in episodes],
            "episode_return": [episode.earned for episode in episodes],
        }


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


def _play(episode: _Episode, encoder: Encoder, ids: list[int], logprobs: list[float]) -> None:
    """Give a reply to the environment, and read on."""
    reply = encoder.text(ids)
    prompt = np.asarray(episode.prompt_ids)
    tokens = TokenRecord(prompt, np.asarray(ids), True, episode.observation)
    observation, reward, is_terminated, is_truncated, _ = episode.env.step(reply)
    episode.earned += reward
    episode.is_over = is_terminated or is_truncated
    episode.prompt_ids = [*episode.prompt_ids, *ids]
    episode.is_own += [1] * len(ids)
    episode.logprobs += logprobs
    if episode.is_over:
        return
    read_on, is_extension = encoder.prompt(observation, Completion(reply, tokens=tokens))
    if not is_extension:
        raise ValueError(
            f"{episode.env.env} rewrote a history, which one row of tokens cannot show; "
            "set it up so that histories only grow"
        )
    news = read_on[len(episode.prompt_ids) :].tolist()
    episode.prompt_ids += news
    episode.is_own += [0] * len(news)
    episode.logprobs += [0.0] * len(news)
    episode.observation = observation


def conversation_class(build: Callable[[], SingleAgent]) -> type:
    """A class for `GRPOTrainer(environment_factory=...)`, whose model plays by calling the tool `write`.

    A row of the dataset has a "prompt", as messages that end with the user's, and a "seed"; what the agent reads first
    is added to the prompt. The environments' own classes do not fit there, since TRL makes a tool of every public
    method.

    Args:
        build: makes the agent's view of its team.
    """

    class Conversation:
        """One episode."""

        def __init__(self) -> None:
            self._env = build()
            self._earned = 0.0
            self._is_over = True
            self._num_read = 0

        def reset(self, seed: int | None = None, **row: object) -> str:
            """Start the episode of a row of the dataset."""
            observation, _ = self._env.reset(seed=seed)
            self._earned, self._is_over, self._num_read = 0.0, False, len(messages_of(observation))
            return str(observation)

        def write(self, text: str) -> str:
            """Write your text of this turn and read what came of it.

            Args:
                text: Your text.

            Returns:
                What you read next.
            """
            if self._is_over:
                return "The episode is over."
            observation, reward, is_terminated, is_truncated, _ = self._env.step(text)
            self._earned += reward
            self._is_over = is_terminated or is_truncated
            news = messages_of(observation)[self._num_read + 1 :]  # without the reply, which is the agent's own
            self._num_read += 1 + len(news)
            return "\n".join(message.content for message in news)

        def get_reward(self) -> float:
            """The return so far."""
            return self._earned

    return Conversation
