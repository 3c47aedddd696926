"""Whole training steps beside comlrl (PyPI), on the same model, game lengths and samples an update.

comlrl pins nothing but is no dependency of ours; where it is not installed, nothing is measured and the reason is said.

    python -m venv reference && reference/bin/pip install collm comlrl==1.4.3
    OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 reference/bin/collm throughput update
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from .babble import FEEDBACK_WORDS, NUM_WORDS, PROMPT_WORDS, babble_model, babble_tokenizer, babble_trainer, reward
from .contests import Contestant, race

VERSION = "1.4.3"
TURNS = 6


@dataclass(frozen=True)
class Contest:
    """One way of training, at one size, with the ratios that are asked for."""

    name: str
    algorithm: str
    num_envs: int
    num_turns: int
    floor: float
    goal: float

    @property
    def new_tokens(self) -> int:
        return 64 if self.num_turns == 1 else 24

    @property
    def num_generations(self) -> int:
        return 4 if self.algorithm == "magrpo" else 1


CONTESTS = (
    Contest("IAC, 1 turn, 8 environments", "iac", 8, 1, 2.5, 3.5),
    Contest("IAC, 1 turn, 32 environments", "iac", 32, 1, 4, 5),
    Contest("MAGRPO, 4 generations of 8 prompts", "magrpo", 32, 1, 1.8, 3),
    Contest("IAC, 6 turns, 8 environments", "iac", 8, TURNS, 5, 7),
    Contest("IAC, 6 turns, 32 environments", "iac", 32, TURNS, 7, 10),
)


def missing() -> str | None:
    """Why nothing can be measured; None if it can."""
    if importlib.util.find_spec("comlrl") is None:
        return "comlrl is not installed: pip install comlrl in an environment of its own"
    version = importlib.metadata.version("comlrl")
    return None if version == VERSION else f"comlrl {version} is installed, but {VERSION} is what is compared with"


def measure(repeats: int, contests: Sequence[Contest] = CONTESTS) -> list[tuple[Contest, float, float]]:
    """Joint turns per CPU second of each contest: ours, and comlrl's.

    comlrl trains one sequence after another, so that a sample costs it the same in an update of any size; for several
    turns it plays 4 episodes an update, at any number of environments, to keep the measurement short.
    """
    contestants: dict[str, Contestant] = {}
    theirs: dict[tuple[str, int, int], str] = {}
    for contest in contests:
        contestants[contest.name] = _ours(contest)
        num_envs = contest.num_envs if contest.num_turns == 1 else 4
        key = (contest.algorithm, contest.num_turns, num_envs)
        if key not in theirs:
            theirs[key] = f"comlrl: {contest.name}"
            contestants[theirs[key]] = _comlrl(contest, num_envs)
    rates = race(contestants, repeats)
    named = {
        contest: theirs[(contest.algorithm, contest.num_turns, contest.num_envs if contest.num_turns == 1 else 4)]
        for contest in contests
    }
    return [(contest, rates[contest.name], rates[named[contest]]) for contest in contests]


def _ours(contest: Contest) -> Contestant:
    settings: dict[str, Any] = {"use_separate_critic": False} if contest.algorithm == "iac" else {"num_generations": 4}
    trainer = babble_trainer(
        contest.algorithm,
        contest.num_envs,
        num_turns=contest.num_turns,
        max_new_tokens=contest.new_tokens,
        **settings,
    )

    def run() -> int:
        episodes, _ = trainer.step()
        return sum(episode.num_turns for episode in episodes)

    return run


def _comlrl(contest: Contest, num_envs: int) -> Contestant:
    rng = Random(0)
    dataset = importlib.import_module("datasets").Dataset.from_list(
        [{"prompt": _words(rng, PROMPT_WORDS)} for _ in range(num_envs // contest.num_generations)]
    )
    common = {
        "num_turns": contest.num_turns,
        "num_agents": 2,
        "max_new_tokens": contest.new_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "num_generations": contest.num_generations,
        "rollout_buffer_size": len(dataset) * contest.num_turns,
        "early_termination_threshold": None,
        "eval_interval": 0,
        "external_prompt_passthrough": True,
    }
    models = [babble_model(number) for number in range(2)]
    shared: dict[str, Any] = {
        "agents": models,
        "tokenizer": [babble_tokenizer() for _ in models],
        "reward_func": _rewards,
        "formatters": [_formatted for _ in models],
        "train_dataset": dataset,
        "external_transition": _transition(rng) if contest.num_turns > 1 else None,
    }
    if contest.algorithm == "iac":
        module = importlib.import_module("comlrl.trainers.actor_critic")
        config = module.IACConfig(num_train_epochs=1, use_separate_critic=False, **common)
        trainer = module.IACTrainer(args=config, **shared)
    else:
        module = importlib.import_module("comlrl.trainers.reinforce")
        config = module.MAGRPOConfig(num_train_epochs=1, **common)
        trainer = module.MAGRPOTrainer(args=config, num_agents=2, **shared)
    trainer.verbose = False

    def run() -> int:
        trainer.train()
        return num_envs * contest.num_turns

    return run


def _rewards(first: Sequence[str], second: Sequence[str], **_: Any) -> list[float]:
    return [(reward(a) + reward(b)) / 2 for a, b in zip(first, second, strict=True)]


def _formatted(item: dict[str, Any], external_prompts: Any = None) -> str:
    return str(item["prompt"] if external_prompts is None else external_prompts)


def _transition(rng: Random) -> Callable[..., list[str]]:
    """The whole history and new words, as our transcripts grow."""

    def transition(
        *, prompt_history_per_agent: Sequence[Sequence[str]], agent_completions: Sequence[str], **_: Any
    ) -> list[str]:
        return [
            f"{prompts[-1]} {reply} {_words(rng, FEEDBACK_WORDS)}"
            for prompts, reply in zip(prompt_history_per_agent, agent_completions, strict=True)
        ]

    return transition


def _words(rng: Random, count: int) -> str:
    return " ".join(f"w{rng.randrange(NUM_WORDS)}" for _ in range(count))
