from collm.envs import Outcome, TextParallelEnv


class Heard(TextParallelEnv):
    """Environment that stores the replies of a turn in `heard`. An agent that replies "leave" leaves the episode."""

    metadata = TextParallelEnv.metadata | {"name": "heard_v0"}

    def __init__(self, agents=("a_0", "b_0"), max_turns=2, prompt=None, **kwargs):
        super().__init__(agents, max_turns, **kwargs)
        self.prompt = prompt

    def deal(self, task):
        return {agent: self.prompt or f"{agent} reads {task} {self.rng.random()}" for agent in self.agents}

    def play(self, replies):
        self.heard = dict(replies)
        finished = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        return Outcome(len(replies), dict.fromkeys(replies, "so"), finished=finished)


class Knowing(Heard):
    """`Heard` with reference replies."""

    def reference_reply(self, agent):
        return f"{agent} at {self.turn}"
