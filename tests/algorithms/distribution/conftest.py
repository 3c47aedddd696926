"""One pair of ranks for all quick tests, as a process takes seconds to start."""

import pytest
import ranked


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the pair's runs lie; one of them was begun by one process."""
    from collm.algorithms.runs.run import run_experiment

    folder = tmp_path_factory.mktemp("ranks")
    run_experiment(ranked.experiment(2), folder / "by one, then two")
    return folder


@pytest.fixture(scope="session")
def pair(folder):
    """What each of two ranks found."""
    return ranked.results(ranked.everything, 2, folder)
