"""Settings → what fits: automatic choices, refusals with the settings that would fit, and devices by agent."""

from dataclasses import replace

import pytest
import torch
from fakes import byte_tokenizer, random_llama

from collm.agents.config import ModelConfig
from collm.agents.decoding.adapters import save_adapter
from collm.agents.loading import with_adapters
from collm.algorithms import IAC, MAAC, MAGRPO, IACConfig, MAACConfig, ReinforceConfig
from collm.algorithms.memory.devices import GIB, bytes_of, gpu_memory, usable
from collm.algorithms.memory.fitting import NoRoom, TrainingSize, check_fit, check_host, fit, members_of, work_of
from collm.algorithms.memory.plan import plan
from collm.algorithms.rollout import side_by_side

TASK = TrainingSize(("fox_0", "stone_0"), prompt_letters=1200, max_turns=1)
MAAC_OF_ACTORS = MAAC(MAACConfig(critic_model_name_or_path="actor"))


def model(size, **settings):
    chosen = {"device": "cuda:0", "compute_dtype": "bfloat16", "max_new_tokens": 512, **settings}
    return ModelConfig(model=f"Qwen/Qwen3-{size}", **chosen)


def of(total):
    return lambda device: usable(total)


def applied(line):
    """The settings that a refusal offers, the first of them."""
    words = line.split("it fits with ")[1].split(", or ")[0].split()
    names = [name.removeprefix("--").replace("-", "_") for name in words[::2]]
    return dict(zip(names, words[1::2], strict=True))


def test_two_full_models_of_4b_with_a_critic_are_refused_on_80_gb_with_what_fits():
    with pytest.raises(NoRoom, match=r"needs 1\d\d\.\d GiB on cuda:0 .*which has 6\d\.\d; it fits with --") as refused:
        check_fit(MAAC_OF_ACTORS, model("4B", compute_dtype="float32"), TASK, of(80 * 10**9))
    changes = applied(str(refused.value))
    of_model = {name: value for name, value in changes.items() if hasattr(ModelConfig(), name)}
    of_config = {name: value for name, value in changes.items() if name not in of_model}
    changed = MAAC(replace(MAAC_OF_ACTORS.config, **of_config))
    assert fit(changed, model("4B", **{"compute_dtype": "float32", **of_model}), TASK, of(80 * 10**9)) is not None


def test_passes_shrink_before_activations_are_recomputed_unless_that_is_set():
    found = {total: fit(MAAC_OF_ACTORS, model("1.7B"), TASK, of(total * GIB)) for total in (150, 100, 84)}
    chosen = {total: (each.recomputes, each.max_tokens) for total, each in found.items()}
    assert chosen[150] == (False, None)
    assert chosen[100][0] is False and chosen[100][1] < 16384
    assert chosen[84][0] is True
    asked = replace(MAAC_OF_ACTORS.config, max_batch_tokens=16384)
    assert fit(MAAC(asked), model("1.7B", recomputes_activations=False), TASK, of(80 * GIB)) is None
    found = fit(MAAC(asked), model("1.7B", recomputes_activations=True), TASK, of(140 * GIB))
    assert found.recomputes and found.max_tokens is None


def test_ranks_are_offered_to_share_what_does_not_fit_on_each():
    eight = replace(TASK, num_ranks=8)
    with pytest.raises(NoRoom, match=r"needs 1\d\d\.\d GiB .* it fits with --fsdp(,|$)"):
        check_fit(MAAC_OF_ACTORS, model("4B", max_new_tokens=224), eight, of(80 * 10**9))
    shared = MAAC(replace(MAAC_OF_ACTORS.config, fsdp=True))
    assert fit(shared, model("4B", max_new_tokens=224), eight, of(80 * 10**9)) is not None
    with pytest.raises(NoRoom):  # one process shares with nobody
        check_fit(shared, model("4B", max_new_tokens=224), TASK, of(80 * 10**9))


def test_members_are_planned_on_their_devices_and_heads_are_none_of_their_own():
    config = replace(MAAC_OF_ACTORS.config, critic_device="cuda:2", reference_device="cuda:3", reference_kl_coef=0.1)
    found = members_of(MAAC(config), model("0.6B", device="cuda:0,cuda:1"), TASK)
    assert {device: [each.name for each in own] for device, own in found.items()} == {
        "cuda:0": ["fox_0"],
        "cuda:1": ["stone_0"],
        "cuda:2": ["critic"],
        "cuda:3": ["reference of fox_0", "reference of stone_0"],
    }
    found = members_of(IAC(IACConfig(use_separate_critic=False)), model("0.6B"), TASK)
    assert [each.name for each in found["cuda:0"]] == ["fox_0", "stone_0"]


def test_actors_with_weights_of_their_own_on_a_cpu_with_cores_for_both_are_planned_side_by_side(monkeypatch):
    def update_of(cores, settings=None, **of_model):
        monkeypatch.setattr(side_by_side, "num_cores", lambda: cores)
        changed = model("0.6B", **{"device": "cpu", **of_model})
        plans = fit(MAAC(MAACConfig(**settings or {})), changed, TASK, lambda device: 10**15).plans
        return plans["cpu"].phases[2].name

    together, apart = "update of fox_0 and stone_0", "update of fox_0"
    assert update_of(cores=2 * torch.get_num_threads()) == together
    assert update_of(cores=1) == apart
    assert update_of(cores=1, settings={"side_by_side": True}) == together
    assert update_of(cores=64, settings={"side_by_side": False}) == apart
    assert update_of(cores=64, settings={"offload": "learner"}) == apart
    assert update_of(cores=64, weights="shared") == "update of fox_0, stone_0"


def test_critics_of_their_own_are_planned_side_by_side_whatever_their_actors_share(monkeypatch):
    monkeypatch.setattr(side_by_side, "num_cores", lambda: 64)

    def updates(weights, **settings):
        algorithm = IAC(IACConfig(critic_model_name_or_path="actor", **settings))
        plans = fit(algorithm, model("0.6B", device="cpu", weights=weights), TASK, lambda device: 10**15).plans
        return [phase.name for phase in plans["cpu"].phases if "critic" in phase.name]

    together = ["update of critic of fox_0 and critic of stone_0"]
    assert updates("own") == updates("adapters") == together
    assert updates("own", side_by_side=False) == ["update of critic of fox_0", "update of critic of stone_0"]
    assert updates("shared") == ["update of critic"]


@pytest.mark.parametrize(
    ("device", "is_on", "together"),
    [("cuda:0", None, False), ("cuda:0", True, True), ("cuda:0,cuda:0", None, False), ("cpu,cuda:1", None, True)],
)
def test_models_on_several_devices_compute_at_once_and_those_on_one_gpu_where_they_are_told_to(device, is_on, together):
    algorithm, on = MAAC(MAACConfig(side_by_side=is_on)), model("0.6B", device=device)
    members = members_of(algorithm, on, TASK)
    for where in members:
        assert work_of(algorithm, on, TASK, members, where, False, 1).side_by_side is together


def test_to_learn_one_after_the_other_is_offered_where_that_fits(monkeypatch):
    monkeypatch.setattr(side_by_side, "num_cores", lambda: 64)
    on_cpu = model("0.6B", device="cpu")

    def peak(config):
        return fit(MAAC(config), on_cpu, TASK, lambda device: 10**15).plans["cpu"].peak.total

    fixed = MAACConfig(max_batch_tokens=2048)
    between = (peak(fixed) + peak(replace(fixed, side_by_side=False))) // 2
    with pytest.raises(NoRoom, match=r"it fits with --side-by-side False"):
        check_fit(MAAC(fixed), replace(on_cpu, recomputes_activations=False), TASK, lambda device: between)


def test_whole_copies_to_decode_with_count_unless_servers_sample():
    config, sixteen = replace(MAAC_OF_ACTORS.config, fsdp=True), replace(TASK, num_ranks=16)

    def peak(asked):
        return fit(MAAC(config), asked, sixteen, of(10**12)).plans["cuda:0"].peak.total

    assert peak(model("8B")) > peak(model("8B", server="http://a:1,http://b:1")) + 12 * GIB


@pytest.mark.parametrize(
    "settings", [{"device": "cpu,cpu,cpu"}, {"device": "cpu,cuda", "weights": "shared"}, {"kv_memory": 0}]
)
def test_devices_that_do_not_match_the_agents_are_refused(settings):
    with pytest.raises(ValueError):
        ModelConfig(**settings).devices(2)


def test_offloaded_models_of_4b_need_host_memory_with_and_without_rounding_to_powers_of_two(monkeypatch):
    def pinned(offload, device="cuda:0"):
        config = replace(MAAC_OF_ACTORS.config, offload=offload)
        plans = fit(MAAC(config), model("4B", device=device), TASK, of(10**12)).plans
        return plans, check_host(plans, 10**12)

    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    plans, rounded = pinned("learner")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "pinned_max_cached_size_mb:64")
    exact = pinned("learner")[1]
    assert exact == pytest.approx(3 * 12 * 4.0e9, rel=0.01)  # weights and 2 moments of 2 actors and a critic
    assert rounded / exact == pytest.approx(1.41, abs=0.005)
    assert pinned("moments")[1] == pytest.approx(2 / 3 * exact, rel=0.01)
    assert pinned("none")[1] == pinned("learner", "cpu")[1] == 0
    assert check_host(plans, int(rounded / 0.9) + 9) == rounded
    with pytest.raises(NoRoom, match=r"offload needs 1\d\d\.\d GiB .* only 115\.2 GiB .*pinned_max_cached_size_mb"):
        check_host(plans, 128 * GIB)


def test_amounts_of_memory():
    assert bytes_of("80GB") == 80 * 10**9 and bytes_of("24 GiB") == 24 * GIB
    assert gpu_memory("H100") == pytest.approx(79.2 * GIB, rel=1e-6)
    for wrong in ("80", "GB", "-3GB", "0GB"):
        with pytest.raises(ValueError, match="amount of memory"):
            bytes_of(wrong)
    with pytest.raises(ValueError, match="did you mean 'h100'"):
        gpu_memory("h10")


def test_the_plan_has_the_rank_of_a_continued_adapter(tmp_path):
    adapted = with_adapters(random_llama(), ["fox_0"], rank=4)
    adapted.base_model.model.save_pretrained(tmp_path / "base")
    adapted.peft_config["fox_0"].base_model_name_or_path = str(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    save_adapter(adapted, "fox_0", tmp_path / "saved")
    settings = ModelConfig(model=str(tmp_path / "saved"), weights="adapters", device="cpu")
    (member,) = members_of(MAAC(MAACConfig(critic_model_name_or_path="bag_of_words")), settings, TASK)["cpu"]
    assert member.rank == 4 != settings.lora_rank


@pytest.mark.parametrize(("turns", "tokens"), [(1, 16 * 64 + 4 * 400), (2, 16 * 3 * 64 + 4 * 400)])
def test_a_pass_has_at_most_the_tokens_of_an_update_with_one_prompt_per_group(turns, tokens):
    task, chosen = replace(TASK, max_turns=turns), model("0.6B", max_new_tokens=64, device="cpu")
    members = members_of(algorithm := MAGRPO(config(16, 4)), chosen, task)
    work = work_of(algorithm, chosen, task, members, "cpu", False, 1)
    assert work.learned == tokens
    few = work_of(MAGRPO(config(4, 4)), chosen, task, members, "cpu", False, 1)
    (peak, smaller) = (plan(members["cpu"], each).peak.total for each in (work, few))
    assert smaller < peak == plan(members["cpu"], replace(work, learned=10**9)).peak.total


def config(num_episodes, num_generations):
    return ReinforceConfig(rollout_buffer_size=num_episodes, num_generations=num_generations)
