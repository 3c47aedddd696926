"""One pair of ranks for all quick tests, because a process takes seconds to start."""

import pytest
import ranked
from vllm_server import StubServer

from collm.agents.tiny import TINY_DIRECTORY


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Folder of the pair's runs, with a run that one process started."""
    from collm.algorithms.runs.run import run_experiment

    folder = tmp_path_factory.mktemp("ranks")
    run_experiment(ranked.experiment(2), folder / "by one, then two")
    return folder


@pytest.fixture(scope="session")
def servers():
    """Four servers of the embedded model; the second one dies after its fifth completion."""
    found = [StubServer(TINY_DIRECTORY) for _ in range(4)]
    found[1].num_left = 5
    yield found
    for server in found:
        server.die()


@pytest.fixture(scope="session")
def pair_and_death(folder, servers):
    """Results of two ranks, and the error and exit status after one of them was killed."""
    # Replicated weights use the first two servers, sharded weights the third.
    addresses = (f"{servers[0].url}+{servers[1].url}", servers[2].url)
    return ranked.last_words(ranked.everything, 2, folder, addresses)


@pytest.fixture(scope="session")
def pair(pair_and_death):
    return pair_and_death[0]
