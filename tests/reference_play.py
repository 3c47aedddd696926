def reference_episode(env, seed, **replies):
    """Play an episode; agents without a fixed reply give reference replies. Returns first observations and turns."""
    opening, _ = env.reset(seed=seed)
    turns = []
    while env.agents:
        given = {agent: replies.get(agent) or env.reference_reply(agent) for agent in env.agents}
        observations, rewards, *_ = env.step(given)
        turns.append((given, observations, rewards))
    return opening, turns


def text_of(messages):
    return "".join(f"{message['content']}\n" for message in messages)
