"""Ranks that sample from servers: rank 0 sends the weights, and the episodes equal those of one process."""

import numpy as np
import pytest
import ranked
from vllm_server import GENERATE

from collm.algorithms.distribution.group import Alone


@pytest.fixture(scope="module")
def by_one(servers):
    return ranked.served(Alone(), servers[3].url, False)


@pytest.mark.parametrize("number", [0, 1], ids=["whole", "shares"])
def test_ranks_play_by_servers_what_one_process_plays(number, pair, by_one):
    first, second = (rank["served"][number] for rank in pair)
    assert first.said == second.said == by_one.said
    assert first.evaluated == second.evaluated == by_one.evaluated
    np.testing.assert_equal(first.metrics, second.metrics)
    for mine, theirs in zip(first.metrics, by_one.metrics, strict=True):
        assert mine["logprob_error"] < 1e-4
        known = {"logprob_error": mine["logprob_error"]}
        assert mine == pytest.approx(theirs | known, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("number", [0, 1], ids=["whole", "shares"])
def test_the_weights_that_ranks_learned_are_what_servers_have_in_the_end(number, pair, servers):
    learned = pair[0]["served"][number].weights
    server = servers[2 * number]
    there = {f"model.{name}": weight.detach().numpy() for name, weight in server.base.named_parameters()}
    assert learned.keys() == there.keys()
    assert all(np.array_equal(weight, there[name]) for name, weight in learned.items())


def test_one_rank_sends_each_version_once_and_prompts_of_a_dead_server_go_to_another_one(pair, servers):
    exchange = ["/pause?mode=wait", "/update_weight_version", "/collective_rpc", "/update_weight_version", "/resume"]
    assert servers[0].paths() == exchange * 2  # after each update
    assert servers[2].paths() == exchange * 3  # and sharded weights at the start
    labels = [body["new_version"] for path, body in servers[2].calls if path == "/update_weight_version"]
    assert len(set(labels)) == 4 and labels[0::2] == ["collm-unfinished"] * 3
    assert servers[1].num_left < 0  # the server died
    assert sum(path == GENERATE for path, _ in servers[0].calls) >= 20 - 5
    assert [rank["served"][1].num_own for rank in pair] == [0, 0]
    assert all(rank["served"][0].num_own > 400_000 for rank in pair)
