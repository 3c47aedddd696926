"""Several servers of one model: samples do not depend on the server, and are never from outdated weights."""

import time

import numpy as np
import pytest
from transformers import AutoModelForCausalLM
from vllm_server import StubServer, learner, perturb, prompts

from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.vllm import replicas
from collm.agents.vllm.server import ServerError


@pytest.fixture
def stubs(folder, monkeypatch):
    monkeypatch.setattr(replicas, "PROBE_S", 0.05)
    servers = [StubServer(folder) for _ in range(2)]
    yield servers
    for server in servers:
        server.die()


@pytest.fixture
def generator(folder, stubs):
    return learner(folder, *(stub.url for stub in stubs), patience_s=5)


def ids(samples):
    return [sample.ids.tolist() for sample in samples]


def num_completions(stub):
    return sum(path == "/inference/v1/generate" for path, _ in stub.calls)


def test_requests_are_shared_out_and_the_turns_of_an_episode_stay_together(generator, stubs):
    generator.generate(prompts(), Sampling())
    assert [num_completions(stub) > 1 for stub in stubs] == [True, True]
    (first,) = [stub for stub in stubs if any(body["token_ids"][0] == 5 for _, body in stub.calls if body)]
    before = num_completions(first)
    generator.generate([Prompt([5, 9, 40, 7, 7], (1, 0, 0, 1), 4)], Sampling())
    assert num_completions(first) == before + 1


def test_one_of_two_servers_dies_and_the_samples_are_the_same(folder, stubs, generator):
    alone = ids(learner(folder, stubs[0].url).generate(prompts(), Sampling()))
    stubs[1].num_left = 1
    with pytest.warns(RuntimeWarning, match=f"not used until .*{stubs[1].url} closed"):
        together = generator.generate(prompts(), Sampling())
    assert ids(together) == alone
    assert num_completions(stubs[1]) > 1 and num_completions(stubs[0]) == len(alone) + 7
    before = num_completions(stubs[1])
    assert ids(generator.generate(prompts(), Sampling())) == alone
    assert num_completions(stubs[1]) == before  # it gets no more requests


def test_a_server_that_comes_back_gets_the_present_weights_before_it_is_asked(folder, stubs, generator):
    generator.generate(prompts(), Sampling())
    port = stubs[1].server_port
    stubs[1].die()
    perturb(generator)
    with pytest.warns(RuntimeWarning, match="not used until"):
        generator.generate(prompts(), Sampling())
    stubs[1] = StubServer(folder, port)  # restarted, with the initial weights
    time.sleep(replicas.PROBE_S)
    with pytest.warns(RuntimeWarning, match="responds again"):
        generator.generate(prompts(), Sampling())
    paths = [path for path, _ in stubs[1].calls]
    assert paths.index("/collective_rpc") < paths.index("/inference/v1/generate")
    assert generator.drift < 1e-5


def test_answers_of_other_weights_are_asked_for_again_three_times(folder, stubs, generator):
    perturb(generator)
    generator.generate(prompts(), Sampling())
    for stub in stubs:
        stub.base, stub.version = AutoModelForCausalLM.from_pretrained(folder), "default"
    again = generator.generate(prompts(), Sampling())
    assert generator.drift < 1e-5
    assert {stub.version for stub in stubs} == {generator._version}
    assert len(again) == 8
    for stub in stubs:
        stub.changes = {"weight_versions": [{"version": "another-run", "start": 0, "end": 1}]}
    with pytest.raises(ServerError, match=r"other weights .* 3 times"):
        generator.generate(prompts(), Sampling())


@pytest.mark.parametrize("path", ["/collective_rpc", "/resume"])
def test_an_exchange_that_breaks_off_leaves_a_label_that_nobody_takes_for_weights(stubs, generator, path):
    generator.generate(prompts(), Sampling())
    perturb(generator)
    stubs[1].fails[path] = 0
    with pytest.warns(RuntimeWarning, match=f"not used until .*{path} answers 500.*it broke"):
        generator.generate(prompts(), Sampling())
    assert generator.drift < 1e-5
    assert stubs[1].paths()[-1] == path  # it stays paused: some of its layers may lack weights
    assert stubs[1].version == ("collm-unfinished" if path == "/collective_rpc" else generator._version)
    assert stubs[0].version == generator._version


def test_the_servers_own_logprobs_are_kept_where_they_are_asked_for(folder, stubs):
    sampling, urls = Sampling(temperature=0.7, top_k=20), [stub.url for stub in stubs]
    with pytest.raises(ServerError, match="--logprobs-mode processed_logprobs"):
        learner(folder, *urls, keeps_logprobs=True).generate(prompts(), sampling)
    for stub in stubs:
        stub.mode = "processed_logprobs"
    generator = learner(folder, *urls, keeps_logprobs=True)
    kept = generator.generate(prompts(), sampling)
    ours = learner(folder, *urls).generate(prompts(), sampling)
    calls = [(stub, body) for stub in stubs for path, body in stub.calls if path.endswith("generate")]
    answers = [stub.completion(body) for stub, body in calls]
    told = {tuple(each["token_ids"]): [token["logprob"] for token in each["logprobs"]["content"]] for each in answers}
    for theirs, mine in zip(kept, ours, strict=True):
        np.testing.assert_allclose(theirs.logprobs, told[tuple(theirs.ids.tolist())], atol=1e-6)
        np.testing.assert_array_equal(theirs.entropies, mine.entropies)
        assert (theirs.logprobs >= mine.logprobs - 1e-5).all() and (theirs.logprobs > mine.logprobs + 1e-3).any()
