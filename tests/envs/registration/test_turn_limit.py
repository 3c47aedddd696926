"""The declared limit of joint turns."""

from collm.envs import make
from collm.envs.registration.turn_limit import TurnLimit, declared_turn_limit


def test_the_limit_is_what_the_environment_declares():
    for id, kwargs, expected in [
        ("collm/MiniBuild-v0", {"max_turns": 3}, 3),
        ("gymnasium/CartPole-v1", {}, 500),
        ("gymnasium/CliffWalking-v1", {}, None),
        ("gymnasium/CliffWalking-v1", {"max_episode_steps": 7}, 7),
        ("mpe2.simple_reference_v3", {"max_cycles": 9}, 9),
    ]:
        env = make(id, **kwargs)
        assert declared_turn_limit(env) == expected
        for outer in (4, 900):  # of two limits the smaller one holds
            assert declared_turn_limit(TurnLimit(env, outer)) == min(outer, expected or outer)
