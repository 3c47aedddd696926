import pytest
from architectures import model_of

from collm.benchmarks.commands.machine import throughput
from collm.benchmarks.errors import UserError
from collm.benchmarks.throughput import decode as throughput_decode
from collm.benchmarks.throughput import limit as throughput_limit
from collm.benchmarks.throughput import rollout as throughput_rollout
from collm.benchmarks.throughput.limit import Utilization
from collm.benchmarks.throughput.rollout import RolloutRow
from collm.benchmarks.throughput.timing import Spread


def test_operations_of_a_pass_by_hand():
    model = model_of("llama")
    layer = sum(weight.numel() for weight in model.model.layers.parameters()) + model.model.norm.weight.numel()
    head, width = model.lm_head.weight.numel(), model.config.hidden_size * model.config.num_hidden_layers
    found = throughput_limit.operations(model, [3, 5], new_tokens=2)
    assert found == 2 * layer * 12 + 2 * head * 4 + 4 * width * (5**2 + 7**2) / 2
    assert throughput_limit.product_rate(1) > 0


def test_the_tables_have_the_measured_ratios():
    row = throughput_decode.DecodeRow("batch 2", {"ours": [20, 30, 40], "theirs": [10, 12, 8]}, "ours", "theirs", 1.5)
    rows = [
        RolloutRow("generate, 1 copy", Spread(1.0, 2.0, 3.0), Spread(40.0, 50.0, 60.0)),
        RolloutRow("collector, 8 copies", Spread(8.0, 9.0, 9.5), Spread(230.0, 240.0, 241.0)),
    ]
    share = Utilization("decode", Spread(1000.0, 1250.0, 1500.0), 4e7, 1e11, 0.25)
    for table, cells in (
        (throughput_decode.table([row]), "ours 30 (20-40) | theirs | 10 (8-12) | 2.50 (2.00-5.00)x | 1.5x"),
        (throughput_rollout.table(rows, "E"), "9.0 (8.0-9.5) | 240 (230-241) | 4.5x"),
        (throughput_limit.table([share]), "1,250 (1,000-1,500) | 50.0 (40.0-60.0) | 100.0 | 50% (40%-60%) | 25%"),
    ):
        assert table.splitlines()[-1].endswith(f" | {cells} |")


@pytest.mark.parametrize(("what", "names"), [("decode", {"decode.md"}), ("all", {"rollout.md", "decode.md"})])
def test_the_command_prints_and_writes_what_is_asked_for(monkeypatch, tmp_path, capsys, what, names):
    measurements = {"rollout": lambda arguments: "one", "decode": lambda arguments: f"{arguments.repeats} times"}
    monkeypatch.setattr(throughput, "MEASUREMENTS", measurements)
    throughput.run([what, "--repeats", "2", "--out", str(tmp_path / "out")])
    assert "2 times" in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "out").iterdir()} == {".collm", *names}
    assert (tmp_path / "out" / "decode.md").read_text().startswith("2 times\n")


def test_an_unknown_environment_is_refused():
    with pytest.raises(UserError, match="nowhere/Nothing-v0"):
        throughput.run(["rollout", "--env", "nowhere/Nothing-v0"])
