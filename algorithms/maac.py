"""MAAC, multi-agent actor-critic (CoLLM-CC): decentralized actors, one critic on the joint history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, final

from .algorithm import ActorCritic, CriticReads
from .config import MAACConfig
from .published import COMAConfig

Settings = TypeVar("Settings", bound=MAACConfig)


class MAAC(ActorCritic[Settings]):
    """Multi-agent actor-critic: decentralized actors and a critic V(h) on the joint history h.

    The advantage is a weighted sum of TD errors r + discount * V(h') - V(h), by default GAE (`estimator`); the paper
    uses one TD error. With `credited_reward="team"`, all agents of a joint turn share one advantage, and the reward is
    the mean over all agents, with 0 for agents that have left. With "own", the critic has one value V_i(h) per agent,
    which is 0 after the agent was terminated. The critic may also read the hidden state of the environment
    (`critic_input`), because only training needs the critic. Source: CoLLM-CC (arXiv:2601.21972).
    """

    critic_reads: ClassVar[CriticReads] = "joint"
    config: MAACConfig  # narrows the type of the base class

    @property
    def reads_truth(self) -> bool:
        return self.config.critic_input == "privileged"


@final
class COMA(MAAC[COMAConfig]):
    """MAAC whose baseline is the mean of the critic's Q(h, a) over the agent's replies, for small sets of replies.

        A_i = Q(h, a) - sum over replies r of pi_i(r | h_i) * Q(h, (a_-i, r))

    The set consists of the replies of this update and the `max_replies` most frequent replies of the run. The agent's
    language model evaluates each of them after each of its histories. Biased as long as the set lacks possible replies.
    Source: COMA (arXiv:1705.08926).
    """

    config: COMAConfig  # narrows the type of the base class
    max_replies: ClassVar[int] = 32

    def __init__(self, config: COMAConfig):
        super().__init__(config)
        self.counts: dict[str, Counter[str]] = {}

    def replies(self, agent: str, given: Sequence[str]) -> list[str]:
        """Count the replies that an agent gave in this update; returns the set of replies, without repetition."""
        known = self.counts.setdefault(agent, Counter())
        known.update(given)
        return list(dict.fromkeys([reply for reply, _ in known.most_common(self.max_replies)] + list(given)))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"counts": {agent: dict(known) for agent, known in self.counts.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.counts = {agent: Counter(known) for agent, known in state["counts"].items()}
