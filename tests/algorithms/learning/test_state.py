"""State goes through JSON and tensors and comes back the same, bit for bit and type for type."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load, save

from collm.agents.core import Completion, CriticInput
from collm.agents.encoding import TokenRecord
from collm.agents.numeric.moments import RunningMoments
from collm.algorithms.learning.critic_learner import ReplayEntry
from collm.algorithms.learning.state import RECORDS, not_finite, packed, storable, unpacked
from collm.envs.core import Message, Transcript


def through_bytes(state):
    content = packed(state)
    return unpacked(json.loads(json.dumps(content.values)), load(save(content.tensors)))


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Transcript):
        return one.messages == other.messages
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or one == other
    return same(vars(one), vars(other)) if hasattr(one, "__dict__") else one == other


messages = st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(), st.text(max_size=5))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None, categories=["L", "Zl", "Zp", "Cc", "Cs"])),
    st.builds(Transcript, st.lists(messages, max_size=3)),
    arrays.arrays(st.sampled_from([np.float32, np.int64, np.bool_, np.uint8]), st.sampled_from([(), (3,), (2, 0)])),
    st.builds(np.float32, st.floats(width=32)),
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.just("$array"), st.integers()), inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(nested)
def test_values_come_back_as_they_were(value):
    assert same(through_bytes({"value": value})["value"], value)


def test_tensors_tied_ones_and_records_come_back():
    weight = torch.arange(6.0, dtype=torch.bfloat16).reshape(2, 3)
    tokens = TokenRecord(np.array([1, 2]), np.array([3]), False, "say")
    done = Completion("word", np.array([-0.5], np.float32), tokens=tokens)
    read = CriticInput((Transcript([Message("user", "say")]),), (), (done,))
    state = {
        "model": {"embedding": weight, "head": weight, "part": weight[1], "turned": weight.T},
        "moments": RunningMoments.empty((2,)),
        "replay": [[ReplayEntry(read, weight[0])]],
        "steps": {0: {"step": torch.tensor(3.0)}},
    }
    content = packed(state)
    assert [name for name in content.tensors if "model/" in name] == ["model/embedding", "model/part", "model/turned"]
    again = through_bytes(state)
    assert same(again["model"], {name: each.contiguous() for name, each in state["model"].items()})
    assert again["moments"].mean.dtype == torch.float64 and again["steps"][0]["step"].shape == ()
    (((entry,),),) = ([again["replay"][0]],)
    assert torch.equal(entry.targets, weight[0]) and entry.input.histories[0].messages == (Message("user", "say"),)
    assert entry.input.completions[0].tokens.prompt_ids.tolist() == [1, 2]


def test_tensors_are_kept_by_their_names_and_those_of_lists_and_records_joined():
    read = CriticInput((), (), ())
    state = {
        "a": {"b": torch.ones(2), "moments": RunningMoments.empty((2,))},
        "a/b": torch.zeros(3),
        "empty": {"one": torch.empty(0), "two": torch.empty(0, 2)},
        "entries": [ReplayEntry(read, torch.full((2,), 5.0)), ReplayEntry(read, torch.full((1, 3), 7.0))],
        "flags": (torch.tensor([True, False]), torch.tensor(4.0)),
        "others": [torch.tensor([8, 9])],
    }
    content = packed(state)
    named = {"a/b", "a/b'", "a/moments/count", "a/moments/mean", "empty/one", "empty/two"}  # mean and squares are one
    assert content.tensors.keys() == named | {"joined/float32", "joined/bool", "joined/int64"}
    assert content.tensors["joined/float32"].tolist() == [5.0, 5.0, 7.0, 7.0, 7.0, 4.0]
    again = through_bytes(state)
    assert torch.equal(again["a"]["b"], torch.ones(2)) and torch.equal(again["a/b"], torch.zeros(3))
    assert again["empty"]["two"].shape == (0, 2)
    assert again["entries"][1].targets.tolist() == [[7.0] * 3]
    assert again["flags"][0].tolist() == [True, False] and again["flags"][1].shape == ()
    assert again["others"][0].tolist() == [8, 9]


def test_messages_are_kept_once_and_arrays_as_copies_in_the_machine_s_byte_order():
    first, second = Message("user", "say"), Message("assistant", "red", "x_0")
    histories = [Transcript([first]), Transcript([first, second]), Transcript([second])]
    content = packed({"histories": histories})
    assert len(content.values["messages"]) == 2
    assert same(through_bytes({"histories": histories})["histories"], histories)
    numbers = np.array([1.5, -2.0], dtype=">f8")
    content = packed([numbers, numbers + 1])
    first, second = unpacked(content.values, content.tensors)
    assert first.dtype == np.float64 and first.tolist() == [1.5, -2.0]
    first[:] = 0
    assert second.tolist() == [2.5, -1.0]
    assert unpacked(content.values, content.tensors)[0].tolist() == [1.5, -2.0]


def test_the_first_number_that_is_not_finite_is_named_by_its_path():
    good, bad = torch.ones(2), torch.tensor([1.0, math.inf])
    state = {"learners": {"writer_0": {"policy": {"weight": good}}, "writer_1": {"policy": {"weight": bad}}}}
    assert packed(state).not_finite == "learners/writer_1/policy/weight"
    both = {"steps": torch.tensor([3]), "first": [good, bad], "second": {"weight": torch.tensor(math.nan)}}
    assert packed(both).not_finite == "first/1"
    assert packed({"observations": np.array([math.inf])}).not_finite is None  # data of the environment
    assert not_finite(packed(state).tensors) == "learners/writer_1/policy/weight"
    assert not_finite(packed({"listed": [good, bad]}).tensors) == "joined/float32"
    assert not_finite(packed({"observations": np.array([math.inf]), "weight": good}).tensors) is None


@dataclass
class Own:
    ids: np.ndarray


def test_a_class_is_held_only_where_it_was_declared(monkeypatch):
    monkeypatch.setattr("collm.algorithms.learning.state.RECORDS", {})
    with pytest.raises(TypeError, match=r"tokens/0 .*Own"):
        packed({"tokens": [Own(np.arange(3))]})
    storable(Own)
    assert through_bytes(Own(np.arange(3))).ids.tolist() == [0, 1, 2]
    assert storable(Own) is Own
    with pytest.raises(ValueError, match="'Own'"):
        storable(dataclass(type("Own", (), {})))
    with pytest.raises(TypeError, match="dataclass"):
        storable(str)
    with pytest.raises(TypeError, match="object"):
        packed({"a": np.array([None])})


WRITTEN_RECORDS = {
    "Completion": "action logprobs entropies is_cut tokens value version",
    "CriticInput": "histories actions completions",
    "Episode": "index seed group tracks states finals is_terminated infos is_complete earlier_return num_agents "
    "options is_cut",
    "Message": "role content author",
    "NumericRecord": "features raw legal",
    "Plan": "seed group task difficulty",
    "ReplayEntry": "input targets",
    "RolloutRequest": "update version plans first num_turns",
    "RunningMoments": "count mean squares",
    "TokenRecord": "prompt_ids completion_ids is_extension observation",
    "Turn": "observation completion reward time",
}
"""Names of records, and of their fields, in checkpoints of version 0.2.0."""


@pytest.mark.parametrize("name", WRITTEN_RECORDS)
def test_records_of_written_checkpoints_are_read_under_their_names(name):
    fields = {field: [field] for field in WRITTEN_RECORDS[name].split()}
    found = unpacked({"state": {"$record": name, "fields": fields}, "messages": []}, {})
    assert isinstance(found, RECORDS[name])
    assert all(getattr(found, field) == value for field, value in fields.items())
