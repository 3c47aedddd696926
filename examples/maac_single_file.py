"""MAAC in one file: two language models learn to divide work, with one critic that reads the joint history.

    pip install ".[train]"
    python examples/maac_single_file.py --seed 0

This is the algorithm of `collm train maac --env collm/MiniShift-v0 --env-kwargs reward=dense` with
`--critic-model-name-or-path actor`, without the library's trainer. `tests/test_single_file.py` compares advantages,
losses and weights with those of the library. Axes of tensors: B episodes, T turns, L tokens.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from collm.agents.tiny import STARTS
from collm.envs import make
from collm.envs.core import Message

ENV, ENV_KWARGS = "collm/MiniShift-v0", {"reward": "dense"}
AGENTS = ("builder_0", "builder_1")
START = STARTS["tiny-MiniShift"]  # folder of the embedded model, trained further on the moves of MiniShift


# 1. Settings.
@dataclass(frozen=True)
class Settings:
    """Settings of a run. Names and defaults are those of `collm train maac`."""

    seed: int = 0
    num_updates: int = 100
    rollout_buffer_size: int = 32  # episodes per update
    max_new_tokens: int = 8  # tokens after which a reply is cut
    discount: float = 1.0  # per turn
    trace: float = 0.9  # lambda of generalized advantage estimation
    agent_learning_rate: float = 5e-4
    critic_learning_rate: float = 1e-3
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    critic_steps: int = 2  # optimizer steps of the critic per update
    critic_batch_size: int = 64  # episodes per step of the critic, drawn from its replay
    critic_replay: int = 16  # most recent updates whose episodes the critic learns from
    critic_warmup: int = 5  # first updates, in which only the critic learns


# 2. Text to tokens. If a reply spells out a special token, the letters are encoded as ordinary text.
tokenizer = AutoTokenizer.from_pretrained(START, split_special_tokens=True)
END, PAD = tokenizer.eos_token_id, tokenizer.pad_token_id


def encode(messages: Sequence[Message]) -> list[int]:
    """Return the token ids of messages as plain text, with a line end after each message."""
    texts = [f"{message.content}\n" for message in messages]
    return [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]


def pad(rows: Sequence[Sequence[int]], value: int, side: str = "right") -> Tensor:
    """Pad rows of different lengths to one tensor [B, L]."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value, padding_side=side)


# 3. Episodes. Histories only grow at their end, so one row of tokens contains all turns of an agent.
@dataclass
class Episode:
    """One episode as tokens and rewards."""

    tokens: dict[str, list[int]]  # by agent: all tokens that the agent read or wrote
    turns: dict[str, list[int]]  # by agent: the turn in which each token was sampled; -1: the agent read it
    joint_tokens: list[int]  # tokens of the joint history before the last turn
    ends: list[int]  # [T] position in `joint_tokens` of the last token before each turn
    rewards: list[float]  # [T] mean reward of the agents

    def extend(self, agent: str, tokens: Sequence[int], turn: int = -1) -> None:
        self.tokens[agent] += tokens
        self.turns[agent] += [turn] * len(tokens)


def play(seeds: Sequence[int], sample: Callable[[str, list[list[int]]], list[list[int]]]) -> list[Episode]:
    """Play one episode per seed, with batched sampling. All episodes terminate after the same number of turns.

    Args:
        sample: function from an agent's name and a batch of prompts to one reply per prompt, all as token ids.
    """
    envs = [make(ENV, **ENV_KWARGS) for _ in seeds]
    episodes = [Episode({agent: [] for agent in AGENTS}, {agent: [] for agent in AGENTS}, [], [], []) for _ in seeds]
    for env, episode, seed in zip(envs, episodes, seeds, strict=True):
        observations, _ = env.reset(seed=seed)
        for agent in AGENTS:
            episode.extend(agent, encode(observations[agent].messages))
    while envs[0].agents:
        for env, episode in zip(envs, episodes, strict=True):
            episode.joint_tokens = [END, *encode(env.state().messages)]
            episode.ends.append(len(episode.joint_tokens) - 1)
        replies = {agent: sample(agent, [episode.tokens[agent] for episode in episodes]) for agent in AGENTS}
        for number, (env, episode) in enumerate(zip(envs, episodes, strict=True)):
            own = {agent: replies[agent][number] for agent in AGENTS}
            actions = {agent: tokenizer.decode(reply, skip_special_tokens=True) for agent, reply in own.items()}
            observations, rewards, _, _, _ = env.step(actions)
            for agent, reply in own.items():
                episode.extend(agent, reply, turn=len(episode.rewards))
                closing = [] if reply[-1] == END else [END]  # of a reply that was cut
                episode.extend(agent, closing + encode(observations[agent].messages[-1:]))  # the feedback
            episode.rewards.append(sum(rewards.values()) / len(AGENTS))
    return episodes


# 4. Critic: V(h) of the joint history h before each turn.
class Critic(nn.Module):
    """Critic: a copy of the embedded model with a linear head, initialized to 0 so that first values are not noise."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = AutoModel.from_pretrained(START)
        self.head = nn.Linear(self.backbone.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, episodes: Sequence[Episode]) -> Tensor:
        """Return [B, T] values in units of the normalized targets. One pass over an episode computes all its values."""
        states = self.backbone(pad([episode.joint_tokens for episode in episodes], PAD)).last_hidden_state
        ends = torch.tensor([episode.ends for episode in episodes])
        return self.head(states[torch.arange(len(episodes))[:, None], ends])[..., 0]


# 5. Advantages and losses.
def gae(rewards: Tensor, values: Tensor, discount: float, trace: float) -> Tensor:
    """Return advantages of terminated episodes by GAE (arXiv:1506.02438), from rewards and values [B, T].

        A[t] = sum over k >= 0 of (discount * trace)^k * delta[t + k]
        delta[t] = r[t] + discount * V[t + 1] - V[t],  V[T] = 0

    Returns:
        [B, T]. With trace 1 and values 0, advantages are the returns from each turn to the end.
    """
    advantages = torch.zeros_like(rewards)
    advantage = next_value = torch.zeros(len(rewards))
    for turn in reversed(range(rewards.shape[1])):
        error = rewards[:, turn] + discount * next_value - values[:, turn]
        advantages[:, turn] = advantage = error + discount * trace * advantage
        next_value = values[:, turn]
    return advantages


def policy_loss(actor: nn.Module, episodes: Sequence[Episode], agent: str, advantages: Tensor) -> Tensor:
    """Return the policy gradient loss: minus the mean over episodes and turns of A * log pi(reply)."""
    tokens = pad([episode.tokens[agent] for episode in episodes], PAD)
    turns = pad([episode.turns[agent] for episode in episodes], -1)[:, 1:]
    logprobs = actor(tokens).logits[:, :-1].log_softmax(dim=-1).gather(2, tokens[:, 1:, None])[..., 0]  # [B, L - 1]
    of_turns = [(logprobs * (turns == turn)).sum(dim=1) for turn in range(advantages.shape[1])]
    return -(advantages * torch.stack(of_turns, dim=1)).mean()


def gradient_step(optimizer: torch.optim.Optimizer, loss: Tensor, max_grad_norm: float) -> tuple[float, float]:
    """Take one optimizer step. Returns the loss and the gradient's norm before clipping."""
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_grad_norm)
    optimizer.step()
    return loss.item(), norm.item()


# 6. Algorithm.
class MAAC:
    """MAAC learner: actors that read their own histories, one critic of the joint history, and their optimizers."""

    def __init__(self, settings: Settings):
        self.settings = settings
        adamw = partial(torch.optim.AdamW, eps=settings.adam_epsilon, weight_decay=0.0)
        self.actors = {agent: AutoModelForCausalLM.from_pretrained(START) for agent in AGENTS}
        rate = settings.agent_learning_rate
        self.optimizers = {agent: adamw(actor.parameters(), rate) for agent, actor in self.actors.items()}
        self.critic = Critic()
        self.critic_optimizer = adamw(self.critic.parameters(), settings.critic_learning_rate)
        self.replay: deque[list[tuple[Episode, Tensor]]] = deque(maxlen=settings.critic_replay)
        self.generator = torch.Generator().manual_seed(settings.seed)  # of the draws from the replay
        self.targets = torch.zeros(0, dtype=torch.float64)  # all value targets so far
        self.mean, self.std = 0.0, 1.0  # of these targets; the critic predicts (V - mean) / std

    @torch.no_grad()
    def sample(self, agent: str, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Sample a reply to each prompt, up to and including the end-of-text token."""
        tokens, mask = pad(prompts, PAD, "left"), pad([[1] * len(prompt) for prompt in prompts], 0, "left")
        limit = self.settings.max_new_tokens
        rows = self.actors[agent].generate(tokens, attention_mask=mask, max_new_tokens=limit, do_sample=True, top_k=0)
        replies = rows[:, tokens.shape[1] :].tolist()
        return [reply[: reply.index(END) + 1] if END in reply else reply for reply in replies]

    @torch.no_grad()
    def credit(self, episodes: Sequence[Episode]) -> tuple[Tensor, Tensor]:
        """Return advantages [B, T] and value targets [B, T], equal for both agents because the reward is shared."""
        settings = self.settings
        rewards = torch.tensor([episode.rewards for episode in episodes])
        values = self.critic(episodes) * self.std + self.mean
        advantages = gae(rewards, values, settings.discount, settings.trace)
        advantages -= advantages.mean()
        advantages /= advantages.std(correction=0) + 1e-6
        return advantages, gae(rewards, torch.zeros_like(values), settings.discount, trace=1.0)

    def learn(self, update: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Update critic and actors with the episodes of update number `update`, from 0. Returns mean metrics."""
        settings, metrics = self.settings, {}
        advantages, targets = self.credit(episodes)
        # The critic regresses on the normalized returns of recent episodes.
        self.targets = torch.cat([self.targets, targets.flatten()])
        self.mean, self.std = float(self.targets.mean()), float(self.targets.std(correction=0)) or 1.0
        self.replay.append(list(zip(episodes, targets, strict=True)))
        memory = [item for recent in self.replay for item in recent]
        steps = []
        for _ in range(settings.critic_steps):
            chosen = torch.randperm(len(memory), generator=self.generator)[: settings.critic_batch_size].tolist()
            normalized = (torch.stack([memory[i][1] for i in chosen]) - self.mean) / self.std
            loss = (self.critic([memory[i][0] for i in chosen]) - normalized).square().mean()
            steps.append(gradient_step(self.critic_optimizer, loss, settings.max_grad_norm))
        metrics["value_loss"], metrics["critic_grad_norm"] = torch.tensor(steps).mean(dim=0).tolist()
        if update < settings.critic_warmup:
            return metrics
        # Each actor takes one step on the policy gradient.
        losses = {agent: policy_loss(actor, episodes, agent, advantages) for agent, actor in self.actors.items()}
        steps = [gradient_step(self.optimizers[agent], losses[agent], settings.max_grad_norm) for agent in AGENTS]
        metrics["policy_loss"], metrics["grad_norm"] = torch.tensor(steps).mean(dim=0).tolist()
        return metrics


# 7. Main loop: collect episodes, learn from them, print.
def train(settings: Settings) -> list[float]:
    """Train a team. Returns the mean return of each update's episodes."""
    torch.manual_seed(settings.seed)
    team, returns = MAAC(settings), []
    for update in range(settings.num_updates):
        episodes = play(torch.randint(2**31, [settings.rollout_buffer_size]).tolist(), team.sample)
        returns.append(sum(sum(episode.rewards) for episode in episodes) / len(episodes))
        metrics = {"return": returns[-1], **team.learn(update, episodes)}
        print(f"update {update + 1}: {', '.join(f'{name} {value:.3f}' for name, value in metrics.items())}", flush=True)
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for each in fields(Settings):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default)
    train(Settings(**vars(parser.parse_args())))
