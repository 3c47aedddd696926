import base64
import contextlib
import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import ENV, read_summaries, write_classic_run, write_run

from collm.algorithms.runs.loggers import JsonLines, read_lines
from collm.benchmarks.commands.report import run
from collm.benchmarks.comparison.summaries import TurnDiagnostics
from collm.benchmarks.report import tables
from collm.benchmarks.report.comparison import Comparison
from collm.benchmarks.report.episodes import Scenes, slim_episodes
from collm.benchmarks.report.report import lead_lines


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed in range(3):
        write_run(tmp_path / "magrpo" / f"{seed}", "magrpo", seed)
        write_run(tmp_path / "maac" / f"{seed}", "maac", seed, bonus=0.1)
    return tmp_path


def rewrite(file: Path, rows: list) -> None:
    file.unlink()
    JsonLines(file).write(rows)


def test_final_scores_are_those_of_the_last_evaluation_and_starts_of_the_first(folder):
    table = tables.final_scores(Comparison(read_summaries(folder)), "sampled")
    assert table.header == ["", "build"]
    assert [row[0] for row in table.rows] == ["before training", "MAGRPO", "MAAC"]
    assert table.rows[1][1].startswith("0.810 [") and table.rows[2][1].startswith("0.910 [")
    summaries = read_summaries(folder)
    late = [replace(each, evaluations=each.evaluations[1:]) for each in summaries]
    assert [row[1] for row in tables.final_scores(Comparison(late), "sampled").rows[:1]] == ["-"]
    told = tables.final_scores(Comparison([summaries[0], *late[1:]]), "sampled").rows
    assert told[0][1] == f"{summaries[0].evaluations[0]['evaluation/sampled/return']:.3f}"
    assert told[1:] == tables.final_scores(Comparison(summaries), "sampled").rows[1:]


def test_differences_are_paired_and_costs_may_be_never(folder):
    comparison = Comparison(read_summaries(folder))
    for how in ("sampled", "training"):
        assert tables.differences(comparison, how).rows == [["MAAC - MAGRPO", "0.100 [0.100, 0.100] *"]]
    assert tables.final_scores(comparison, "training").rows[1][1].startswith("0.650 [")  # 0.5, 0.6, 0.7, 0.8
    summaries = read_summaries(folder)
    table = tables.sample_efficiency(Comparison(summaries), "environment_steps")
    assert table.rows[0] == ["MAGRPO", "56 [56, 56], 3 of 3"]
    high = [type(each)(**{**vars(each), "threshold": 3.0}) for each in summaries]
    assert tables.sample_efficiency(Comparison(high), "sampled_tokens").rows[0][1] == "never [never, never], 0 of 3"
    different, same = tables.settings(Comparison(read_summaries(folder)))
    assert ["config.critic_warmup", "-", "null"] in [list(row) for row in different.rows]
    assert "env" in [row[0] for row in same.rows] and "config.seed" not in [row[0] for row in different.rows]


def test_shares_of_the_work_are_the_mean_over_runs_at_the_end_and_no_table_without_any(folder):
    summaries = read_summaries(folder)
    assert tables.shares(Comparison(summaries)).rows == []
    name = "evaluation/sampled/metric/share/"
    told = []
    for each, part in zip(summaries, (0.2, 0.3, 0.4, 0.5, 0.5, 0.5), strict=True):
        last = {**each.evaluations[-1], f"{name}a_0": part, f"{name}b_0": 1 - part}
        told.append(replace(each, evaluations=[*each.evaluations, last]))
    rows = {row[0]: row[1] for row in tables.shares(Comparison(told)).rows}
    first, second = (each.algorithm for each in (summaries[0], summaries[-1]))
    assert rows == {first: "a_0 0.30, b_0 0.70", second: "a_0 0.50, b_0 0.50"}
    always = [each for each in told if each.algorithm == second]
    assert tables.shares(Comparison(always)).rows == []  # without a value that can vary, there is no table


def test_critics_and_advantages_are_a_table_over_all_turns(folder):
    turns = [TurnDiagnostics(0, 0.3, 0.1, 0.9), TurnDiagnostics(1, 0.1, 0.1, 0.5)]
    runs = [replace(each, diagnostics=turns) for each in read_summaries(folder)]
    blind = [replace(each, diagnostics=[replace(turns[0], explained_variance=None)]) for each in runs[:3]]
    rows = tables.learning_signals(Comparison([*blind, *runs[3:]])).rows
    assert rows[0] == ["MAGRPO, build", "-", "0.333 [0.333, 0.333]"]
    assert rows[1] == ["MAAC, build", "0.800 [0.800, 0.800]", "0.500 [0.500, 0.500]"]
    assert tables.learning_signals(Comparison([replace(each, diagnostics=[]) for each in runs])).rows == []


def test_the_title_has_the_suite_the_methods_and_the_environments(folder):
    run([str(folder)])
    assert "<h1>MAGRPO and MAAC in build</h1>" in (folder / "report.html").read_text()
    for file in folder.glob("*/*/benchmark.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"suite": "claim"}))
    run([str(folder)])
    assert (folder / "tables.md").read_text().startswith("## claim: MAGRPO and MAAC in build\n")


def test_wasted_moves_are_told_apart_before_and_after_training_and_no_table_without_any(folder):
    summaries = read_summaries(folder)
    assert tables.wasted(Comparison(summaries)).rows == []
    own, collisions = (f"evaluation/sampled/metric/{name}" for name in ("own_repeats", "collisions"))
    start = [0.5, 0.5, 0.5, 0.1, 0.2, 0.3]
    told = []
    for each, before in zip(summaries, start, strict=True):
        first, *_, last = each.evaluations
        ends = {**first, own: before, collisions: 2 * before}, {**last, own: before / 2, collisions: 0.0}
        told.append(replace(each, evaluations=list(ends)))
    cells = [row[1] for row in tables.wasted(Comparison(told)).rows]
    assert cells[0] == "own repeats 0.50 → 0.25, collisions 1.00 → 0.00"
    assert cells[1] == "own repeats 0.20 → 0.10, collisions 0.40 → 0.00"


def test_runs_that_ended_in_silence_are_named(folder):
    """Twenty updates in which no two returns differ, up to the last one; a shorter or an earlier silence is none."""
    loud, *others = read_summaries(folder)
    curves = {**loud.curves, "update": list(range(1, 41)), "return": [0.5] * 10 + [0.0] * 30}
    shares_of = {"late": [0.0] * 15 + [1.0] * 25, "early": [1.0] * 39 + [0.5], "short": [0.0] * 21 + [1.0] * 19}
    found = {}
    for name, equal in shares_of.items():
        run = replace(loud, curves={**curves, "equal_returns": equal})
        lines = lead_lines(Comparison([run, *others]), folder, 0)
        found[name] = run.silent_since, [line for line in lines if "Stopped learning" in line]
    assert found["early"] == found["short"] == (None, [])
    since, (line,) = found["late"]
    assert since == 16 and f"{loud.algorithm} in build, seed 0: from update 16" in line


def test_runs_from_before_advantages_were_recorded_unnormalized_have_no_diagnostics_and_the_page_says_so(folder):
    for file in folder.glob("magrpo/*/episodes.jsonl"):
        rows = read_lines(file)
        for turn in (turn for row in rows for agent in row["agents"].values() for turn in agent["turns"]):
            del turn["raw_advantage"], turn["return_to_go"]
        rewrite(file, rows)
    run([str(folder)])
    assert {each.algorithm for each in read_summaries(folder) if each.diagnostics} == {"MAAC"}
    assert "Without diagnostics: 3. Their episodes lack" in (folder / "tables.md").read_text()


def test_unfinished_runs_and_runs_whose_policy_never_changed_are_named(folder):
    (folder / "maac" / "2" / "finished.json").unlink()
    file = folder / "maac" / "1" / "metrics.jsonl"
    rewrite(file, [row | {"grad_norm": 0.0} for row in read_lines(file)])
    frozen = folder / "magrpo" / "2" / "config.json"
    config = json.loads(frozen.read_text())
    config["config"] |= {"agent_learning_rate": 0.0}
    frozen.write_text(json.dumps(config))
    lines = lead_lines(Comparison(read_summaries(folder)), folder, 0)
    assert "5 finished runs" in lines[0] and lines[1].startswith("Not finished: 1.")
    (unmoved,) = [each for each in lines if "never changed" in each]
    assert unmoved.endswith("MAGRPO in build, seed 2; MAAC in build, seed 1.")


def test_scenes_are_what_the_world_looked_like_without_files_elsewhere(folder, tmp_path):
    record = read_lines(folder / "maac" / "0" / "episodes.jsonl")[0]
    found = Scenes("collm/MiniBuild-v0", ENV, Path()).of(record)
    captions = [row[0] for row in found["scenes"][0]]
    goal, built = (row[1][0] for row in found["scenes"][2])
    assert len(found["scenes"]) == 3 and captions == ["TARGET", "BUILT"] and goal == built
    record["agents"]["builder_0"]["turns"][0]["reward"] += 0.1  # the episode does not replay
    assert Scenes("collm/MiniBuild-v0", ENV, Path()).of(record) == {}
    secret = tmp_path / "secret.jsonl"
    secret.write_text("{}\n")
    with pytest.warns(UserWarning, match=r"no pictures.*secret\.jsonl"):
        scenes = Scenes("collm/StrBuild-v2", {"data": str(secret)}, folder / "maac" / "0")
    assert scenes.of({}) == {}


@pytest.mark.parametrize("lines", ["all", "none", "half", "a half line"])
def test_episodes_that_are_lost_are_told_in_a_line(folder, capsys, lines):
    file = folder / "maac" / "0" / "episodes.jsonl"
    kept = file.read_text().splitlines(keepends=True)
    number = {"all": len(kept), "none": 0, "half": len(kept) // 2, "a half line": len(kept) - 1}[lines]
    file.write_text("".join(kept[:number]) + ("" if lines != "a half line" else kept[-1][:40]))
    is_cut = lines == "a half line"
    with pytest.warns(UserWarning, match="last line") if is_cut else contextlib.nullcontext():
        run([str(file.parent), "--out", str(folder / "page")])
    told = [line for line in capsys.readouterr().out.splitlines() if "lacks the episodes" in line]
    assert len(told) == (0 if lines == "all" or is_cut else 1)
    assert not told or str(file) in told[0]


@pytest.mark.parametrize("value", ['"x"', "[]", "1e999", "1" + "0" * 400])
def test_what_is_no_number_in_the_metrics_is_named(folder, value):
    file = folder / "maac" / "0" / "metrics.jsonl"
    file.write_text(file.read_text() + f'{{"update": 9, "return": {value}}}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 9: 'return'"):
        run([str(file.parent), "--out", str(folder / "page")])


def test_fewer_episodes_keep_the_best_and_the_worst(folder):
    rows = read_lines(folder / "maac" / "0" / "episodes.jsonl")
    rows[5]["return"], rows[7]["return"] = 9.0, -9.0
    kept = list(slim_episodes(folder / "maac" / "0", rows, 4))
    assert len(kept) == 4 and {9.0, -9.0} < {each["return"] for each in kept}


def test_the_page_is_whole_runs_its_own_scripts_and_needs_nothing_else(folder):
    run([str(folder), "--notes", "on <two> cores"])
    text = (folder / "report.html").read_text()
    assert "on &lt;two&gt; cores" in text
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["']?(?!data:|#)[^"'\s>]+""", markup)
    assert "{{" not in markup and "//" not in markup
    assert not re.findall(r"https?://(?!www\.w3\.org/)[\w.]+", text)  # names of formats
    index = json.loads(re.search(r'id="index">(.*?)</script>', text, re.S).group(1))
    chunks = re.findall(r'id="chunk-\d+">(.*?)</script>', text)
    episodes = [each for chunk in chunks for each in json.loads(gzip.decompress(base64.b64decode(chunk)))]
    assert len(index["index"]["run"]) == len(episodes) == 6 * 16
    figures = list((folder / "figures").iterdir())
    assert len(re.findall('role="img"', markup)) == len(figures)
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r"url\(#(\w+)\)", text)) <= set(ids)
    assert {"scenes", "agents", "infos", "palette"} <= episodes[0].keys()
    assert {path.suffix for path in figures} == {".png"}
    run([str(folder)])
    text = (folder / "report.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text).group(1)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    assert policy.startswith("default-src 'none';")
    assert policy.partition("script-src ")[2] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert len(scripts) == 2


def test_names_and_replies_that_are_markup_stay_text(folder):
    hostile = "$</script><script>alert(1)</script><img src=x onerror=alert(1)>$"
    for file in folder.glob("maac/*/episodes.jsonl"):
        rows = read_lines(file)
        rows[0]["agents"]["builder_0"]["turns"][0]["wrote"] = hostile
        rewrite(file, rows)
    for file in folder.glob("maac/*/benchmark.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"algorithm": hostile, "environment": hostile}))
    run([str(folder), "--title", hostile, "--notes", hostile])
    text = (folder / "report.html").read_text()
    assert "alert(1)</script>" not in text and "<img" not in text
    assert len(re.findall(r"<script>", text)) == 2


def test_tables_and_exports_come_from_kept_summaries_alone(folder, tmp_path_factory):
    run([str(folder)])
    kept = tmp_path_factory.mktemp("kept")
    for name in ("summaries.jsonl", "episodes.jsonl"):
        (kept / name).write_bytes((folder / name).read_bytes())
    run([str(kept)])
    assert (kept / "tables.md").read_text() == (folder / "tables.md").read_text()
    assert (kept / "marl_eval.json").read_text() == (folder / "marl_eval.json").read_text()
    found = json.loads((folder / "marl_eval.json").read_text())
    one = found["collm"]["build"]["MAAC"]["seed_1"]
    assert one["step_1"] == {"step_count": 64, "return": [pytest.approx(0.91)], "greedy_return": [0.4]}
    assert one["absolute_metrics"]["return"] == [pytest.approx(0.91)]


def test_a_report_of_one_run_leaves_its_records_alone(tmp_path):
    directory = write_run(tmp_path / "run", "maac", 0)
    before = (directory / "episodes.jsonl").read_bytes()
    run([str(directory)])
    assert (directory / "episodes.jsonl").read_bytes() == before
    before = (directory / "tables.md").read_text()
    run([str(directory)])
    assert (directory / "tables.md").read_text() == before


@pytest.mark.parametrize("with_return", [(), (2,), (3, 5, 8)])
def test_updates_in_which_no_episode_ended_have_no_return(folder, with_return):
    for file in folder.glob("maac/*/metrics.jsonl"):
        rows = read_lines(file)
        for row in rows:
            if row["update"] not in with_return:
                del row["return"]
        rewrite(file, rows)
    run([str(folder)])
    scores = {row[0]: row[1] for row in tables.final_scores(Comparison(read_summaries(folder)), "training").rows}
    ended = sorted(with_return)[len(with_return) // 2 :]
    expected = f"{sum(0.1 * update + 0.1 for update in ended) / len(ended):.3f} [" if ended else "-"
    assert scores["MAAC"].startswith(expected) and scores["MAGRPO"].startswith("0.650 [")


def test_a_classic_task_stands_beside_a_text_task(folder):
    for seed in range(3):
        write_classic_run(folder / "cart" / "magrpo" / f"{seed}", "magrpo", seed, rate=20.0)
        write_classic_run(folder / "cart" / "iac" / f"{seed}", "iac", seed, rate=10.0)
    run([str(folder)])
    comparison = Comparison(read_summaries(folder))
    finals = {row[0]: row[1:] for row in tables.final_scores(comparison, "sampled").rows}
    assert finals["MAGRPO"][1].startswith("261.000 [") and finals["IAC"] == ["-", finals["IAC"][1]]
    reached = {row[0]: row[1:] for row in tables.sample_efficiency(comparison, "environment_steps").rows}
    assert reached["MAGRPO"] == ["56 [56, 56], 3 of 3", "1,200 [1,200, 1,200], 3 of 3"]
    assert reached["IAC"] == ["-", "never [never, never], 0 of 3"]
    assert tables.sample_efficiency(comparison, "sampled_tokens").header == ["", "build, 0.5"]
    assert tables.aggregates(comparison).rows == []
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert {f"{what}-{where}" for what in ("final", "steps-to-threshold") for where in ("build", "CartPole")} <= drawn
    assert not {"profile", "advantages-CartPole", "curve-generated-tokens-CartPole"} & drawn
