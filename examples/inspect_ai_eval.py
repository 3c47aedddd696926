"""Evaluate a team with Inspect AI, with one model role per agent and one sample per episode.

    pip install inspect-ai openai
    python examples/inspect_ai_eval.py http://localhost:8000/v1 MODEL

The server must support OpenAI's chat completions. The script prints the team's mean return.
"""

from __future__ import annotations

import sys

from inspect_ai import eval
from inspect_ai.model import get_model

from collm.agents.interop.inspect_ai import episodes

url, name = sys.argv[1:]
model = get_model(f"openai-api/local/{name}", base_url=url, api_key="none")
(log,) = eval(episodes("collm/MiniBuild-v0", num_samples=8, reward="dense"), model=model, display="none")
(team,) = (score for score in log.results.scores if score.name == "team")
print(f"inspect-ai, {log.eval.model} on collm/MiniBuild-v0: {team.metrics['mean'].value:.3f}")
