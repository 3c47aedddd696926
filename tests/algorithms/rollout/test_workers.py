"""Settings decide where the copies of an environment step."""

import pytest

from collm.algorithms.config import IACConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs import ProcessVector, SyncVector

ENV = "collm/MiniWriting-v2"


def _experiment(**settings):
    return Experiment(algorithm="iac", config=IACConfig(**settings), env=ENV)


def test_copies_step_in_as_many_workers_as_are_asked_for():
    with _experiment().make_vector("train", 3) as here, _experiment(num_workers=2).make_vector("train", 3) as there:
        assert isinstance(here, SyncVector)
        assert isinstance(there, ProcessVector)
        assert there.num_workers == 2
        assert here.reset(1, seed=4) == there.reset(1, seed=4)


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(ValueError, match=r"num_workers.*got -1"):
        _experiment(num_workers=-1)
