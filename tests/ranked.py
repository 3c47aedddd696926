"""Functions that start the processes of one group, as torchrun does, and training runs in these processes."""

import os
import shutil
import signal
import socket
import traceback
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import pytest
import torch
from kernels import torch_alone
from probes import AGENTS, WORDS, NumberProbe, TextProbe, random_llama, small_team, word_tokenizer
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModel

from collm.agents.config import ModelConfig
from collm.agents.core import CriticInput
from collm.agents.language.critics import TextCritic, add_lora
from collm.agents.numeric.config import NetworkConfig
from collm.agents.numeric.policy import NumericPolicy
from collm.agents.scoring.sharding import full
from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig, IACConfig, MAACConfig
from collm.algorithms.distribution.group import LostRankError, current
from collm.algorithms.distribution.launch import joined
from collm.algorithms.learning.state import packed
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.algorithms.runs.checkpoint import newest_checkpoint
from collm.algorithms.runs.evaluation import evaluate
from collm.algorithms.runs.run import run_experiment
from collm.algorithms.runs.stopping import StopAsked, Stopped
from collm.envs.core import Outcome
from collm.envs.vectors.faults import EnvironmentFault
from collm.envs.vectors.vector import SyncVector

TIMEOUT_S = 3600


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(function, size, *args, patience_s=40.0, death_port=None):
    """Start processes that join a group and call a function. Returns processes and queue of (rank, is_fine, result).

    With a `death_port`, the processes then join a second group, in which the last rank dies.
    """
    context = get_context("spawn")
    queue: Any = context.Queue()
    shared = (size, free_port(), patience_s, death_port)
    processes = [
        context.Process(target=_life, args=(function, rank, *shared, args, queue), daemon=True) for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes, queue


def results(function, size, *args, patience_s=40.0, death_port=None):
    """Return a function's results by rank; with `death_port` also the first rank's error and the last exit code."""
    processes, queue = start(function, size, *args, patience_s=patience_s, death_port=death_port)
    found = {}
    try:
        for _ in range(size + (death_port is not None)):
            rank, is_fine, result = queue.get(timeout=TIMEOUT_S)
            assert is_fine, f"rank {rank}: {result}"
            found[rank] = result
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    ordered = [found[rank] for rank in range(size)]
    return ordered if death_port is None else (ordered, (found["said"], processes[-1].exitcode))


def last_words(function, size, *args):
    """Return a function's results by rank, the first rank's error after the last is killed, and the exit code."""
    return results(function, size, *args, death_port=free_port())


def _life(function, rank, size, port, patience_s, death_port, args, queue):
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(size))
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        with joined(patience_s) as group:
            result = function(group, *args)
        queue.put((rank, True, result))
        if death_port is not None:
            _die(rank, size, death_port, queue)
    except BaseException:
        queue.put((rank, False, traceback.format_exc()))


def _die(rank, size, port, queue):
    if rank == size - 1:
        queue.close()
        queue.join_thread()  # otherwise it dies while it holds the lock of the pipe
    os.environ["MASTER_PORT"] = str(port)
    try:
        with joined(4.0) as group:
            group.gather(None)
            if rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            group.gather(None)
    except LostRankError as error:
        if rank == 0:
            queue.put(("said", True, str(error)))


NAMES = ("iac", "maac", "ippo", "mappo", "magrpo", "mareinforce", "marloo", "maremax", "collm-cc", "collm-dc")
WEIGHTS = ("own", "shared", "adapters")
NUM_EPISODES = 6
CLOCK = ("second", "tokens_per_second")


def critics_of(name):
    config = algorithm_spec(name).config
    if not issubclass(config, ActorCriticConfig):
        return ("none",)
    return ("v", "q", "head") if issubclass(config, IACConfig) else ("v", "q")


class Case(NamedTuple):
    """Training run: its algorithm, the team's weights, the kind of critic, and changed settings."""

    name: str
    weights: str
    critic: str
    is_text: bool = True
    settings: tuple[tuple[str, Any], ...] = ()
    num_updates: int = 1
    recomputes: bool = False
    waits: bool = False  # agents act in turn and have their own rewards


class WaitingProbe(TextProbe):
    """Probe in which the agents act in turn. The agent that acts is paid for its word, and the other agent is not."""

    interests = "mixed"

    def deal(self, task):
        opening = super().deal(task)
        self.movers = list(AGENTS[:1])
        return opening

    def play(self, replies):
        (agent,) = self.movers
        seat = AGENTS.index(agent)
        rewards = dict.fromkeys(AGENTS, 0.25) | {agent: float(replies[agent].split() == [WORDS[self.asked[seat]]])}
        is_over = self.turn + 1 == self.max_turns
        movers = None if is_over else [AGENTS[(seat + 1) % len(AGENTS)]]
        return Outcome(rewards, {} if is_over else dict.fromkeys(AGENTS, "next"), movers=movers)


class Found(NamedTuple):
    """Results of a training run on one rank."""

    gradients: dict[int, list[Any]]  # of each optimizer's first step, policies before critics
    metrics: list[dict[str, float]]
    said: list[tuple[int, str, Any, float]]  # episode, agent, action, reward
    weights: list[Any]
    num_played: int  # episodes that this rank began
    num_kept: int  # weights of this rank's optimizers, and their moments


def team(weights, is_text, has_value_head, recomputes=False, device="cpu", **settings):
    if not is_text:
        env = NumberProbe("delayed")
        spaces = env.observation_space(AGENTS[0]), env.action_space(AGENTS[0])
        settings = {"hidden_dims": (8,), "has_value_head": has_value_head, "device": device}
        made = [NumericPolicy.for_spaces(*spaces, seed=seed, **settings) for seed in range(len(AGENTS))]
        return dict.fromkeys(AGENTS, made[0]) if weights == "shared" else dict(zip(AGENTS, made, strict=True))

    settings |= {"max_new_tokens": 3, "has_value_head": has_value_head}
    return small_team(weights, device, recomputes, **settings)


def algorithm_of(name, critic, **settings):
    """Make an algorithm with this kind of critic, and with all optional terms of the loss."""
    spec = algorithm_spec(name)
    chosen = {"num_generations": 2, "agent_learning_rate": 1e-3, "mini_batch_size": None}
    chosen |= {"reference_kl_coef": 0.05, "entropy_coef": 0.01}
    if critic != "none":
        chosen |= {"critic_warmup": 0, "critic_model_name_or_path": "small", "critic_steps": 2}
        chosen |= {"critic_type": "q" if critic == "q" else "v", "value_clip_range": 0.5}
        if issubclass(spec.config, IACConfig):
            chosen["use_separate_critic"] = critic != "head"
    return spec.make(spec.config(**(chosen | settings)))


def trainer_of(case):
    chosen = {"rollout_buffer_size": NUM_EPISODES, "max_batch_tokens": 40}
    chosen |= {"max_grad_norm": 1e9}  # no clipping, which would divide gradients by their norm
    chosen |= {} if case.critic == "none" else {"critic_batch_size": 5}
    algorithm = algorithm_of(case.name, case.critic, **(chosen | dict(case.settings)))
    world = WaitingProbe if case.waits else TextProbe if case.is_text else NumberProbe
    policies = team(case.weights, case.is_text, algorithm.has_actor_heads, case.recomputes)
    vector = SyncVector(lambda: world("delayed"), 4)
    return make_trainer(algorithm, vector, policies, network=NetworkConfig(hidden_dims=(8,)))


def stepped(trainer, num_updates):
    """Run updates. Returns (episode, agent, action, reward) of each turn, and the metrics without times."""
    said, metrics = [], []
    for _ in range(num_updates):
        episodes, measured = trainer.step()
        metrics.append({name: value for name, value in measured.items() if not any(part in name for part in CLOCK)})
        for episode in episodes:
            for agent, track in episode.tracks.items():
                said += [(episode.index, agent, turn.completion.action, turn.reward) for turn in track]
    return said, metrics


@torch_alone()  # as for sharded weights
def trained(case) -> Found:
    """Train for some updates in the current group."""
    trainer = trainer_of(case)
    vector, started = trainer.collector.vector, []
    reset = vector.send_reset
    vector.send_reset = lambda *args: (started.append(args), reset(*args))[1]
    gradients: dict[int, list[Any]] = {}
    optimizers = [learner.optimizer for learner in trainer.unique_learners]
    optimizers += [critic.optimizer for critic in trainer.unique_critics if critic.optimizer is not None]
    for number, optimizer in enumerate(optimizers):
        _note_gradients(optimizer, number, gradients)
    said, metrics = stepped(trainer, case.num_updates)
    weights = [full(weight.detach()).numpy().copy() for each in optimizers for weight in each.parameters]
    kept = [value for each in optimizers for moments in each.adamw.state.values() for value in moments.values()]
    kept += [weight for each in optimizers for weight in each.share.weights]
    return Found(gradients, metrics, said, weights, len(started), sum(value.numel() for value in kept))


def _note_gradients(optimizer, number, gradients):
    clip = optimizer.share.clip

    def noted(*args):
        grads = [weight.grad for weight in optimizer.parameters]
        if number not in gradients:
            gradients[number] = [None if grad is None else full(grad).numpy().copy() for grad in grads]
        return clip(*args)

    optimizer.share.clip = noted


def all_trained(group, cases) -> list[Found]:
    return [trained(case) for case in cases]


def next_update(directory, fsdp=False):
    """Load a checkpoint. Returns True if the loaded state is bitwise equal, and the metrics of the next update."""
    trainer = experiment(3, fsdp).make_trainer()
    state = newest_checkpoint(directory).trainer
    trainer.load_state_dict(state)
    is_same = True
    with trainer.whole():
        if current().is_writer:
            found, expected = (packed(each).tensors for each in (trainer.state_dict(), state))
            is_same = found.keys() == expected.keys() and all(torch.equal(found[n], expected[n]) for n in found)
    return is_same, stepped(trainer, 1)[1][0]


FSDP = (("fsdp", True),)
QUICK = [
    Case("maac", "own", "v", num_updates=2),
    Case("iac", "adapters", "head"),
    Case("magrpo", "shared", "none"),
    Case("collm-dc", "own", "q", settings=(("reference_kl_in", "reward"),)),
    Case("mappo", "own", "v", is_text=False, settings=(("mini_batch_size", 7), ("ppo_epochs", 2))),
    Case("magrpo", "own", "none", settings=(("max_batch_tokens", 10_000),)),  # one pass, cut for two
    Case("magrpo", "own", "none", settings=(("joint_mode", "aligned"), ("max_batch_tokens", 130))),  # an uneven share
    Case("ippo", "own", "v", settings=(("turns_per_update", 2), ("num_generations", 1))),
    Case("magrpo", "adapters", "none", settings=(("credit", "token"),), recomputes=True),
    Case("maac", "own", "q", settings=(*FSDP, ("max_grad_norm", 1e-5))),
    Case("maac", "own", "v", settings=(*FSDP,), num_updates=2, waits=True),
    Case("magrpo", "shared", "none", waits=True),
    Case("c3", "own", "none", settings=(("num_generations", 1),), waits=True),
    Case("ippo", "shared", "head", settings=(*FSDP, ("mini_batch_size", 5)), recomputes=True),  # 2 + 2 + 1 tracks
    Case("magrpo", "own", "none", settings=(("max_staleness", 1),), num_updates=3),
]


def runs(group, folder, fsdp):
    """Run two updates on all ranks, and resume a run of one process on all ranks; returns files and next updates."""
    run_experiment(experiment(2, fsdp), folder / "by two")
    names = ("by two", "by one, then two")
    for name in names:
        group.by_writer(lambda name=name: shutil.copytree(folder / name, folder / "then" / name))
    updates = {name: next_update(folder / name, fsdp) for name in names}
    run_experiment(experiment(3, fsdp), folder / "by one, then two", resume=True)
    return [sorted(each.name for each in (folder / name).iterdir()) for name in names], updates


class LateSignal:
    """Simulated stop signal to one rank, after the first update."""

    def __init__(self, metrics, is_here):
        self.metrics, self.is_here = metrics, is_here

    def check(self):
        if self.is_here and self.metrics.exists():
            raise StopAsked(15)


def stopped(group, folder):
    """Return the message and the status with which all ranks stop if one rank gets a signal."""
    try:
        signal = LateSignal(folder / "stopped" / "metrics.jsonl", group.rank == 1)
        run_experiment(experiment(2), folder / "stopped", stop=signal)
    except Stopped as error:
        return str(error), error.status
    return "not stopped", 0


def experiment(num_updates, fsdp=False):
    size = {"rollout_buffer_size": 4, "eval_num_samples": 3, "critic_warmup": 0, "max_batch_tokens": 256}
    config = MAACConfig(num_updates=num_updates, fsdp=fsdp, **size)
    model = ModelConfig(max_new_tokens=12, device="cpu")
    return Experiment(algorithm="maac", config=config, env="collm/MiniWriting-v2", model=model)


def exchanged(group):
    def works():
        if group.rank == 1:
            raise EnvironmentFault("it fell over", "speaker_0")
        return group.rank

    with pytest.raises(EnvironmentFault, match="it fell over") as error:
        group.together(works)
    numbers, others = torch.tensor([1.0, 2.0]) * (group.rank + 1), torch.ones(3, dtype=torch.float64)
    group.add_up([numbers, others])
    spread = torch.full((2,), float(group.rank))
    group.spread([spread])
    return {
        "fault": error.value.agent,
        "shares": group.gather(group.shard("abcde")),
        "sums": (numbers.tolist(), others.tolist()),
        "spread": spread.tolist(),
        "agreed": group.agreed(group.rank + 7),
        "written": group.by_writer(lambda: f"by {group.rank}"),
        "union": {number: found.tolist() for number, found in group.union({group.rank: numbers}).items()},
        "is current": current() is group,
    }


def critics(group, folder, rank):
    """Compare a sharded critic, before and after saving, with a whole one. Returns differences and gradient scale."""
    base, saved = folder / f"base {rank}", folder / f"critic {rank}"
    group.by_writer(lambda: random_llama(0, num_layers=2).model.save_pretrained(base))

    def critic():
        torch.manual_seed(0)
        backbone = AutoModel.from_pretrained(base)
        if rank is not None:
            add_lora(backbone, rank)
        made = TextCritic(backbone, word_tokenizer())
        for name, weight in [*made.backbone.named_parameters(), *made.head.named_parameters()]:
            if "lora_B" in name or len(weight) == 1:  # these weights are zero at first, and zeros pass no gradients
                torch.nn.init.constant_(weight, 0.1)
        return made

    whole, shared = critic(), critic()
    shared.shard(init_device_mesh("cpu", (group.size,)))
    inputs = [CriticInput((f"say {word}",)) for word in WORDS[: group.size]]
    expected, own = whole.values(inputs), shared.values(group.shard(inputs))
    expected.sum().backward()
    own.sum().backward()
    sums, grads = (
        [full(weight.grad) for weight in each.backbone.parameters() if weight.ndim > 1 and weight.requires_grad]
        for each in (shared, whole)
    )
    with shared.whole():
        group.by_writer(lambda: shared.save(saved))
        if group.is_writer:
            states = [each.state_dict() for each in (whole, shared)]
            assert all(torch.equal(states[0][name], states[1][name]) for name in states[0] | states[1])
    differences = {
        "values": (expected[group.rank] - own[0]).abs().max().item(),
        "gradients": max((a - group.size * b).abs().max().item() for a, b in zip(grads, sums, strict=True)),
        "loaded": (expected - TextCritic.load(saved).values(inputs)).abs().max().item(),
    }
    return differences, max(grad.abs().max().item() for grad in grads)


class Served(NamedTuple):
    """Results, on one rank, of a training run with completions sampled by servers."""

    said: list[tuple[int, str, str, float]]  # of all updates: episode, agent, action, reward
    metrics: list[dict[str, float]]
    evaluated: list[str]  # actions after the last update
    weights: dict[str, Any]  # of the first rank, at the end
    num_own: int  # weights of the model on this rank that are not sharded


def served(group, server, fsdp, num_updates=2):
    """Train for some updates with completions sampled by servers, and evaluate."""
    asked = experiment(num_updates, fsdp)
    model = replace(asked.model, weights="shared", server=server, max_new_tokens=12)
    trainer = replace(asked, model=model, config=replace(asked.config, agent_learning_rate=1e-4)).make_trainer()
    said, metrics = stepped(trainer, num_updates)
    evaluated = evaluate(trainer.collector, 2, greedy=True)
    (policy,) = set(trainer.collector.policies.values())
    own = sum(weight.numel() for weight in policy.language_model.model.parameters() if weight.ndim > 1)
    with trainer.whole():
        weights = {name: each.numpy().copy() for name, each in policy.state_dict().items()} if group.is_writer else {}
    tracks = [track for each in evaluated.episodes for track in each.tracks.values()]
    actions = [turn.completion.action for track in tracks for turn in track]
    return Served(said, metrics, actions, weights, own)


def everything(group, folder, servers):
    """Return all results for the quick tests, from one pair of ranks."""
    return {
        "served": [served(group, server, fsdp) for server, fsdp in zip(servers, (False, True), strict=True)],
        "exchanged": exchanged(group),
        "updates": all_trained(group, QUICK),
        "critics": [critics(group, folder, rank) for rank in (None, 3)],
        "runs": runs(group, folder, True),
        "stopped": stopped(group, folder),
    }
