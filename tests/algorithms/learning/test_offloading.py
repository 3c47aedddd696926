"""Offload changes where weights and moments wait, and no result."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from pretended import pretended
from small_trainers import text_trainer, weights
from torch._subclasses.fake_tensor import FakeTensorMode

from collm.algorithms.config import TrainConfig
from collm.algorithms.learning import offloading, optimizer


def trainer_of(name, offload, **changes):
    return text_trainer(name, rollout_buffer_size=4, critic_batch_size=2, offload=offload, **changes)


def outcome(trainer):
    for _ in range(2):
        trainer.step()
    return weights(trainer)


@pytest.fixture
def moving(monkeypatch):
    """Let host memory be other memory than the device's, though both are this machine's."""
    moved = []

    def away(tensor):
        moved.append(tensor.nbytes)
        return tensor.clone()

    monkeypatch.setattr(offloading, "to_host", away)
    return moved


@pytest.mark.parametrize("name", ["maac", "iac"])
@pytest.mark.parametrize("offload", ["moments", "learner"])
def test_learners_that_take_turns_learn_the_same_to_the_bit(name, offload, moving):
    plain = outcome(trainer_of(name, "none"))
    assert moving == []
    turned = outcome(trainer_of(name, offload))
    assert sum(moving) > 0
    assert all(torch.equal(one, other) for one, other in zip(plain, turned, strict=True))


def watch(trainer, present, monkeypatch):
    old = trainer.offloader.only
    monkeypatch.setattr(trainer.offloader, "only", lambda each: (present.append(set(each)), old(each)))


def test_only_the_learner_at_work_is_on_the_device(moving, monkeypatch):
    trainer = trainer_of("maac", "learner")
    present = []
    watch(trainer, present, monkeypatch)
    actors, critic = set(trainer.unique_learners), {trainer.critics["joint"]}
    trainer.step()
    one, other = ({actor} for actor in trainer.unique_learners)
    # values, the critic's steps, and each actor's update; between them all is there that decides
    assert present == [critic, actors, critic, actors, one, actors, other, actors]
    assert all(weight.grad is None for each in trainer.collector.policies.values() for weight in each.parameters())


def test_actors_are_on_the_device_while_references_are_read(moving, monkeypatch):
    """An adapter's reference is the actor's own base, and a copy as reference is not moved at all."""
    trainer = trainer_of("maac", "learner", reference_kl_coef=0.1)
    actors = set(trainer.unique_learners)
    present, read_with = [actors], []
    watch(trainer, present, monkeypatch)
    for policy in trainer.references.values():
        old = policy.evaluate
        policy.evaluate = lambda tracks, old=old: (read_with.append(present[-1]), old(tracks))[1]
    trainer.step()
    trainer.step()
    assert read_with == [actors] * 4


def test_on_a_cpu_nothing_moves():
    weight = torch.nn.Parameter(torch.ones(3))
    place = weight.data_ptr()
    offloading.WeightOffloader({1: [weight], 2: []}).only([2])
    assert weight.data_ptr() == place


@dataclass(eq=False)
class Weight:
    """A weight, which is also its own data: only the place matters."""

    device: str

    @property
    def data(self):
        return self

    @data.setter
    def data(self, other):
        self.device = other.device

    def to(self, device, *, non_blocking):
        return Weight(device)


def test_weights_leave_their_devices_and_come_back(monkeypatch):
    monkeypatch.setattr(offloading, "to_host", lambda numbers: Weight("host"))
    own, others, of_both = Weight("one"), Weight("two"), Weight("one")
    offloader = offloading.WeightOffloader({1: [own, of_both], 2: [others, of_both]})
    expected = {(2,): "host two one", (1,): "one host one", (): "host host host", (1, 2): "one two one"}
    for learners, places in expected.items():
        offloader.only(learners)
        assert [weight.device for weight in (own, others, of_both)] == places.split()


@pytest.mark.parametrize(("device", "is_pinned"), [("cuda", True), ("xpu", False), ("mps", False)])
def test_memory_is_pinned_for_cuda_alone(device, is_pinned, monkeypatch):
    asked = []

    def empty_like(tensor, *, device, pin_memory):
        asked.append(pin_memory)
        return torch.empty(tensor.shape)

    with FakeTensorMode():
        there = torch.empty(2, device=device)
        monkeypatch.setattr(torch, "empty_like", empty_like)
        assert offloading.to_host(there).device.type == "cpu"
    assert asked == [is_pinned]


@pytest.mark.parametrize(("offload", "is_away"), [("none", False), ("moments", True), ("learner", True)])
def test_moments_wait_in_host_memory_between_steps(offload, is_away):
    with pretended():
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]).to("far"))
        adamw = optimizer.Optimizer([weight], 0.1, TrainConfig(offload=offload))
        for _ in range(2):
            torch.autograd.backward(adamw.scaled((weight * weight).sum()))
            adamw.step(optimizer.Tally())
            adamw.zero_grad()
        moments = adamw.adamw.state[weight]
        assert {moments[name].device.type for name in ("exp_avg", "exp_avg_sq")} == {"cpu" if is_away else "far"}
        assert weight.device.type == "far"
