"""HouseBuild for models without knowledge of its commands, with builders that leave. Does not import torch."""

from random import Random

from collm.envs.games.house_build import HouseBuild


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
