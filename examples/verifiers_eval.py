"""Evaluate a team with verifiers, with one model per agent. verifiers loads this file as a package.

    pip install verifiers uv
    python examples/verifiers_eval.py http://localhost:8000/v1 MODEL

The server must support streamed chat completions of OpenAI. The script prints the agents' mean return.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from collm.agents.interop.verifiers import environment

MiniBuildTaskset, MiniBuildEnv = environment("collm/MiniBuild-v0", reward="dense")
__all__ = ["MiniBuildEnv", "MiniBuildTaskset"]

if __name__ == "__main__":
    url, model = sys.argv[1:]
    environ = {"OPENAI_API_KEY": "none", **os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    call = ["vf-eval", "verifiers_eval", "-m", model, "--client.base-url", url, "-n", "4", "-r", "1", "--no-push"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(call, cwd=folder, env=environ, check=True)
        (file,) = Path(folder).glob("outputs/**/traces.jsonl")
        episodes = [json.loads(line) for line in file.read_text().splitlines()]
    returns = [trace["rewards"]["return"]["score"] for episode in episodes for trace in episode["traces"]]
    print(f"\nverifiers, {model} on collm/MiniBuild-v0: {sum(returns) / len(returns):.3f}")
