"""Settings of games: a wrong one is refused with its name and its value."""

import re

import pytest

from collm.envs import make

WRONG = {
    "collm/BridgeBuild-v2": [
        *({"feedback": "all"}, {"reward": "iou"}, {"reach": "bank"}, {"view": -1}, {"difficulty": 6}),
        {"split": "valid"},
    ],
    "collm/HouseBuild-v2": [
        *({"split": "valid"}, {"difficulty": 0}, {"world": "new"}, {"reward": "released"}, {"feedback": "none"}),
        *({"feedback_limit": 0}, {"spider_attacks": [1, -1]}),
    ],
    "collm/MiniBuild-v0": [
        *({"split": "valid"}, {"max_turns": 13}, {"max_turns": 0}, {"reward": "thresh"}, {"feedback": "all"}),
        *({"threshold": 0.0}, {"max_turns": 1, "num_agents": 1}, {"max_turns": 1, "num_agents": 9}),
        *({"max_turns": 1, "num_agents": True}, {"num_agents": 8, "max_turns": 4}),  # there are 24 parts
    ],
    "collm/MiniShift-v0": [
        *({"split": "valid"}, {"max_turns": 0}, {"reward": "thresh"}, {"feedback": "all"}, {"threshold": 1.5}),
        *({"num_agents": 1}, {"num_agents": 9}, {"num_agents": True}),
    ],
    "collm/ResourceGathering-v2": [{"reward": "iou"}, {"feedback": "all"}, {"reach": -1}, {"difficulty": 0}],
    "collm/StrBuild-v2": [
        *({"split": "valid"}, {"split": "all"}, {"difficulty": 9}, {"difficulty": True}, {"world": "new"}),
        *({"reward": "paper"}, {"feedback": "none"}),
    ],
}
"""Settings by game; the last one of each dictionary is wrong."""


@pytest.mark.parametrize("id", WRONG)
def test_wrong_settings_are_refused(id):
    for kwargs in WRONG[id]:
        name, value = list(kwargs.items())[-1]
        with pytest.raises(ValueError, match=rf"\b{name}\b.*{re.escape(repr(value))}"):
            make(id, **kwargs)
