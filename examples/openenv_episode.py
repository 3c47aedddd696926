"""Serve an environment over the network with OpenEnv, with a client that acts for all agents of the team.

    pip install openenv
    python examples/openenv_episode.py

The client sends a constant reply for each agent. The script prints the mean return.
"""

from __future__ import annotations

import threading
import time

import uvicorn
from openenv.core.generic_client import GenericEnvClient

from collm.agents.interop.openenv import server
from collm.envs import make

app = uvicorn.Server(
    uvicorn.Config(server(lambda: make("collm/MiniBuild-v0", reward="dense")), port=0, log_level="warning")
)
threading.Thread(target=app.run, daemon=True).start()
while not app.started:
    time.sleep(0.05)
port = app.servers[0].sockets[0].getsockname()[1]

earned = 0.0
with GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as client:
    for seed in range(8):
        result = client.reset(seed=seed)
        while not result.done:
            result = client.step({"texts": dict.fromkeys(result.observation["agents"], "desk wood")})
            earned += result.reward
print(f"openenv, constant builders on collm/MiniBuild-v0: {earned / 8:.3f}")
app.should_exit = True
