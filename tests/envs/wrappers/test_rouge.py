"""Agreement with reference summaries as a reward."""

import pytest
from replies import begun

from collm.envs import make
from collm.envs.wrappers.rouge import Rouge

pytest.importorskip("rouge_score", reason="the extra rouge is not installed")

ROW = {
    "post": "Cats chase mice in the barn at night. Dogs guard the sheep. Hens lay eggs in the morning.",
    "target": ["cats chase mice at night", "dogs guard sheep"],
}


def reward(replies, **settings):
    env = begun(make("collm/TLDR-v2", data=[ROW], **({"reward_funcs": [Rouge("target")]} | settings)), seed=0)
    return env.step(dict(zip(env.agents, replies, strict=True)))[1]["writer_0"]


def test_agreement_by_hand_with_the_nearest_reference_which_no_writer_reads():
    # Common sequence with the first reference: 3 of 3 and 3 of 5 words, F1 3/4; then 1 of 2 and 1 of 4 bigrams, F1 1/3.
    assert reward(["cats mice night", "dogs guard sheep"]) == pytest.approx((3 / 4 / 2 + 1) / 2)
    assert reward(["cats chase birds", "dogs guard sheep"]) == pytest.approx(((1 / 3 + 1 / 2) / 2 + 1) / 2)
    assert reward(ROW["target"]) == pytest.approx(1.0) == reward(ROW["target"][::-1])
    assert reward(["", "we like it"]) == 0
    env = make("collm/TLDR-v2", data=[ROW], reward_funcs=["own", "collm.envs.wrappers.rouge:target"])
    observations, _ = env.reset(seed=0)
    assert not any(reference in str(text) for text in observations.values() for reference in ROW["target"])
    with pytest.raises(ValueError, match="'summary'"):
        reward(["", ""], reward_funcs=[Rouge("summary")])
