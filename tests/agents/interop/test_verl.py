import asyncio
import shlex
import subprocess
import sys
import warnings

import pytest
from fences import fenced

pytest.importorskip("verl")

with warnings.catch_warnings():  # raised by verl
    warnings.simplefilter("ignore")
    import hydra
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

from collm.agents.interop.verl import rows
from collm.agents.tiny import TINY_DIRECTORY
from collm.envs import make

pytestmark = pytest.mark.filterwarnings("ignore")
KWARGS = {"max_turns": 3, "reward": "dense"}
LOOP = {"name": "mini_build", "env": "collm/MiniBuild-v0", "agent": "builder_1", "kwargs": KWARGS}
LOOP |= {"_target_": "collm.agents.interop.verl.EpisodeLoop"}


class Server:
    """Fake of verl's client of inference servers, with given replies."""

    def __init__(self, tokenizer, replies):
        self.tokenizer, self.replies, self.asked = tokenizer, list(replies), []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **others):
        assert not others and sampling_params == {"temperature": 1.0}
        self.asked.append((request_id, list(prompt_ids)))
        ids = self.tokenizer.encode(self.replies[len(self.asked) - 1], add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def row_of_seed():
    (row,) = rows("mini_build", LOOP["env"], [3], "builder_1", **KWARGS)
    return row


def played(row, replies, response_length=64, loop_config=LOOP):
    tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    server = Server(tokenizer, replies)
    rollout = {"prompt_length": 128, "response_length": response_length}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})

    async def run():
        parts = {"server_manager": server, "tokenizer": tokenizer, "processor": None, "hf_model_type": "llama"}
        parts |= {"trainer_config": DictConfigWrap(config), "data_config": DictConfigWrap(config.data)}
        parts |= {"dataset_cls": RLHFDataset, "tools": ToolListWrap([])}
        loop = hydra.utils.instantiate(OmegaConf.create(loop_config), **parts)
        given = {name: value for name, value in row.items() if name not in ("prompt", "agent_name")}
        return await loop.run({"temperature": 1.0}, raw_prompt=row["prompt"], **given)

    return asyncio.run(run()), server


def test_an_episode_is_a_response_whose_mask_selects_the_agent_s_tokens():
    row = row_of_seed()
    bare = make(LOOP["env"], **KWARGS)
    observations, _ = bare.reset(seed=3)
    opening, replies, rewards = str(observations["builder_1"]), [], []
    while bare.agents:
        replies.append("desk wood" if not replies else bare.reference_reply("builder_1"))
        joint = {"builder_0": bare.reference_reply("builder_0"), "builder_1": replies[-1]}
        observations, paid, *_ = bare.step(joint)
        rewards.append(paid["builder_1"])
    output, server = played(row, replies)
    tokenizer = server.tokenizer
    written = [tokenizer.encode(reply, add_special_tokens=False) for reply in replies]
    assert tokenizer.decode(output.prompt_ids) == opening
    drawn = list(zip(output.response_ids, output.response_logprobs, output.response_mask, strict=True))
    assert [each[:2] for each in drawn if each[2]] == [(token, -0.5) for reply in written for token in reply]
    assert not all(output.response_mask) and len(server.asked) == len(replies)
    assert len({request for request, _ in server.asked}) == 1
    # Each request has all previous tokens.
    whole = [*output.prompt_ids, *output.response_ids]
    assert all(asked == whole[: len(asked)] for _, asked in server.asked)
    assert output.reward_score == pytest.approx(sum(rewards)) and output.extra_fields["turn_scores"] == rewards
    assert sum(rewards) > 0 and output.as_dict()["rm_scores"].sum().item() == pytest.approx(sum(rewards))


def test_an_episode_begins_with_the_user_s_prompt_and_is_truncated_at_the_response_length():
    row = row_of_seed()
    output, server = played(row, ["desk wood"] * 3, response_length=3)
    assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs) == 3
    assert len(server.asked) == 1
    output, server = played(row | {"prompt": [{"role": "system", "content": "stone"}]}, ["desk wood"] * 3)
    texts = ["stone", *(message["content"] for message in row["prompt"])]
    assert server.tokenizer.decode(output.prompt_ids) == "".join(f"{text}\n" for text in texts)


def test_the_loops_of_the_page_play_its_rows(root):
    page = (root / "docs" / "use_with" / "verl.md").read_text()
    (yaml,) = fenced(page, "yaml")
    (loop,) = OmegaConf.create(yaml)
    (row,) = rows(loop.name, loop.env, [3], loop.agent, **loop.kwargs)
    assert row["agent_name"] == "mini_build"
    output, server = played(row, ["desk wood"] * 20, response_length=200, loop_config=loop)
    assert 1 < len(server.asked) < 20 and output.reward_score is not None


def test_the_settings_of_the_pages_command_are_ones_that_verl_has(root, tmp_path):
    """The command only prints its settings, because the trainer needs GPUs."""
    page = (root / "docs" / "use_with" / "verl.md").read_text()
    (command,) = fenced(page, "sh")
    _, *call = shlex.split(command.replace("\\\n", " "))
    call = [sys.executable, *call, "--cfg", "job"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    config = OmegaConf.create(done.stdout)
    assert config.data.train_files == "mini_build.parquet" and config.data.return_raw_chat
    assert config.actor_rollout_ref.rollout.agent.agent_loop_config_path == "loops.yaml"
