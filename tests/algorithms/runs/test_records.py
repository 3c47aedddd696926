"""Records of a run: episodes that can be read and scored again, metrics as whole lines, the folder."""

import json
import math

import numpy as np
import pytest
from probes import AGENTS, NumberProbe, TextProbe, word_policies
from small_trainers import text_trainer

from collm.agents.config import ModelConfig
from collm.agents.core import Completion
from collm.agents.encoding import TokenRecord
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import IPPO, IPPOConfig
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.files import read_config, write_config
from collm.algorithms.runs.folder import check_is_free, prepare_directory
from collm.algorithms.runs.loggers import JsonLines, read_lines
from collm.algorithms.runs.records import episode_records
from collm.envs.vectors.vector import SyncVector


def played(count=3):
    policies = word_policies(max_new_tokens=3)
    collector = RolloutCollector(SyncVector(lambda: TextProbe("delayed"), 2), policies)
    return collector.collect([Plan(seed) for seed in range(count)]), policies


def test_a_record_holds_everything_that_was_read_and_written_once():
    episodes, _ = played()
    for record, episode in zip(json.loads(json.dumps(episode_records(episodes, update=7))), episodes, strict=True):
        assert (record["update"], record["seed"], record["return"]) == (7, episode.seed, episode.team_return)
        for agent, track in episode.tracks.items():
            turns = record["agents"][agent]["turns"]
            assert [turn["wrote"] for turn in turns] == [turn.completion.action for turn in track]
            assert all(len(turn["read"]) == 1 for turn in turns)
            first, *later = (turn["read"][0]["content"] for turn in turns)
            assert first.startswith("say ") and later == ["next", "next"]


def test_episodes_can_be_scored_again_from_their_records_alone():
    episodes, policies = played()
    for record, episode in zip(json.loads(json.dumps(episode_records(episodes))), episodes, strict=True):
        for agent in AGENTS:
            known, track = [], []
            for turn in record["agents"][agent]["turns"]:
                prompt = [*known, *turn["prompt_ids"]] if turn["is_extension"] else turn["prompt_ids"]
                ids = turn["completion_ids"]
                tokens = TokenRecord(np.array(prompt), np.array(ids), turn["is_extension"], observation="")
                track.append(Completion(turn["wrote"], np.zeros(len(ids), np.float32), tokens=tokens))
                known = [*prompt, *ids]
            found = policies[agent].evaluate([track]).logprobs.detach()
            expected = np.concatenate([turn.completion.logprobs for turn in episode.tracks[agent]])
            np.testing.assert_allclose(found, expected, atol=1e-4)


def test_records_carry_the_credit_of_each_turn():
    trainer = text_trainer("magrpo", advantage_normalization="none")
    episodes, _ = trainer.step()
    records = episode_records(episodes, trainer.credits)
    turns = [turn for record in records for turn in record["agents"][AGENTS[0]]["turns"]]
    credit = trainer.credits[AGENTS[0]]
    columns = {"value": "values", "advantage": "advantages", "raw_advantage": "raw_advantages"}
    for name, column in (columns | {"return_to_go": "returns"}).items():
        assert [turn[name] for turn in turns] == getattr(credit, column).tolist()


def test_moves_by_vectors_are_kept_short_and_can_be_played_again():
    vector = SyncVector(lambda: NumberProbe("delayed"), 2)
    policies = make_policies(IPPO(IPPOConfig()), vector, ModelConfig(), NetworkConfig())
    episodes = RolloutCollector(vector, policies).collect([Plan(5)])
    (record,) = json.loads(json.dumps(episode_records(episodes)))
    env = NumberProbe("delayed")
    env.reset(seed=record["seed"])
    rewards = [env.step({agent: record["agents"][agent]["actions"][turn] for agent in AGENTS})[1] for turn in range(3)]
    assert [each[AGENTS[0]] for each in rewards] == record["agents"][AGENTS[0]]["rewards"]


def test_metrics_are_whole_lines_of_json_whatever_the_numbers(tmp_path):
    file = JsonLines(tmp_path / "metrics.jsonl")
    file.write([{"update": 1, "return": 0.5, "explained_variance": math.nan, "value_loss": math.inf}])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "ret')  # a crash
    with pytest.warns(UserWarning, match="last line 2"):
        found = read_lines(tmp_path / "metrics.jsonl")
    assert found == [{"update": 1, "return": 0.5, "explained_variance": None, "value_loss": None}]


def test_a_directory_with_a_run_is_not_overwritten(tmp_path):
    prepare_directory(tmp_path / "run")
    config = {"algorithm": "iac", "env": "collm/MiniCode-v1", "env_kwargs": {}, "config": {"seed": 1}}
    write_config(tmp_path / "run", config)
    assert read_config(tmp_path / "run") == config
    (tmp_path / "run" / "agents").mkdir()
    with pytest.raises(FileExistsError, match="already contains a run"):
        check_is_free(tmp_path / "run", config)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="give another --out"):
        prepare_directory(tmp_path / "file" / "run")
    with pytest.raises(FileNotFoundError, match="contains no run"):
        read_config(tmp_path / "elsewhere")
