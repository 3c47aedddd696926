"""Play episodes of one builder of a team in SkyRL-gym. The partner gives reference replies.

    pip install skyrl-gym
    python examples/skyrl_episode.py

The builder always gives the same reply. The script prints the mean return.
"""

from __future__ import annotations

import skyrl_gym

skyrl_gym.register(id="collm", entry_point="collm.agents.interop.skyrl:ConversationEnv")
CONFIG = {"env": "collm/MiniBuild-v0", "kwargs": {"reward": "dense"}}
returns = []
for seed in range(8):
    env = skyrl_gym.make("collm", env_config=CONFIG, extras={"seed": seed})
    conversation, _ = env.init([])
    is_over = False
    while not is_over:
        step = env.step("desk wood")
        conversation += [{"role": "assistant", "content": "desk wood"}, *step["observations"]]
        is_over = step["done"]
    returns.append(env.get_metrics()["return"])
print(f"skyrl-gym, a constant builder on collm/MiniBuild-v0: {sum(returns) / len(returns):.3f}")
