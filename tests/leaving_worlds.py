"""Environments whose agents leave before the episode ends. Does not import torch."""

from random import Random

from collm.envs import Message, Outcome, TextParallelEnv
from collm.envs.games.house_build import HouseBuild


class Asking(TextParallelEnv):
    """An agent leaves if it says so. After "forget", its history begins again. The reward differs per agent."""

    def __init__(self):
        super().__init__(["asker_0", "asker_1"], max_turns=4)

    def deal(self, task):
        return {agent: [Message("system", "rules"), Message("user", "go")] for agent in self.possible_agents}

    def play(self, replies):
        finished = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        rewritten = {agent: [Message("user", "again")] for agent, reply in replies.items() if reply == "forget"}
        rewards = {agent: self.turn + len(agent + reply) for agent, reply in replies.items()}
        told = {agent: f"heard {reply}" for agent, reply in replies.items() if agent not in finished}
        return Outcome(rewards, told, {"half": 0.5}, finished=finished, rewritten=rewritten)


class SpokenHouse(HouseBuild):
    """HouseBuild whose replies are seeds of random subsets of reference commands. Builders leave in 30 % of turns."""

    def __init__(self, **kwargs):
        settings = {"num_agents": 3, "difficulty": 1, "can_leave": True, "reward": "iou"}
        super().__init__(prompts={"prompt": "{layers}"}, **settings, **kwargs)

    def turned(self, replies):
        return super().turned({agent: self.meant(agent, reply) for agent, reply in replies.items()})

    def meant(self, agent, reply):
        rng = Random(f"{agent} {reply}")
        lines = [line for line in self.reference(agent).splitlines() if rng.random() < 0.7]
        return "\n".join([*lines, "/done"] if rng.random() < 0.3 else lines)
