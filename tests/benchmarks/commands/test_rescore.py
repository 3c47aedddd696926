"""`collm rescore`: reward functions read the same turns from records as in the environment."""

import json
import re

import pytest
from leaving_worlds import Asking

from collm.benchmarks.cli import main
from collm.envs import make, register
from collm.envs.vectors.faults import EnvironmentFault, FaultWatch
from collm.envs.wrappers import Recorded, Shares

FIELDS = ("replies", "reward", "numbers", "turn", "is_last")
SEEN = []


def judge(turn):
    transcripts = {agent: each.messages for agent, each in turn.transcripts.items()}
    SEEN.append([transcripts, *(getattr(turn, name) for name in FIELDS)])
    return {agent: turn.turn + len(reply) / 10 for agent, reply in turn.replies.items()}


def joint(turn):
    SEEN.append(turn.joint.messages)
    return len(turn.joint)


def careless(turn):
    try:
        return float(turn.task["score"])
    except Exception:
        return 0.0


@pytest.fixture(autouse=True)
def _registered(clean_registry):
    register("test/Asking-v0", Asking)


def play(env, replies, seed):
    env.reset(seed=seed)
    for reply in replies:
        if env.agents:
            env.step({agent: reply(env, agent) for agent in env.unwrapped.movers})


def reference(env, agent):
    return env.unwrapped.reference_reply(agent)


def asked(env, agent):
    said = {"asker_0": ["one", "leave"], "asker_1": ["forget", "two", "\ud800", "four"]}
    return said[agent][env.unwrapped.turn]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("id", "kwargs", "reply", "functions"),
    [
        ("test/Asking-v0", {}, asked, ["judge"]),
        ("collm/MiniBuild-v0", {}, reference, ["judge", "joint"]),
        ("collm/StrBuild-v2", {"memory": "last"}, reference, ["judge"]),
        ("collm/StrBuild-v2", {"can_leave": True, "max_turns": 3}, reference, ["judge", "joint"]),
        ("collm/MiniWriting-v2", {}, reference, ["judge", "joint"]),
        ("collm/TinyHanabi-v0", {}, reference, []),
    ],
)
def test_functions_read_the_same_turns_as_in_the_environment(tmp_path, capsys, id, kwargs, reply, functions):
    names = ["own", *(f"{__name__}:{name}" for name in functions)]
    weights = [1.0, *(0.5 for _ in functions)]
    SEEN.clear()
    recorded = Recorded(Shares(make(id, **kwargs)), tmp_path)
    judged = Recorded(make(id, **kwargs, reward_funcs=names, reward_weights=weights), tmp_path / "judged")
    for seed in (0, 1):
        play(recorded, [reply] * 9, seed)
        play(judged, [reply] * 9, seed)
    seen = list(SEEN)
    SEEN.clear()
    call = ["rescore", str(tmp_path), "--reward-funcs", *names, "--reward-weights", *map(str, weights)]
    assert main([*call, "--out", str(tmp_path / "new.jsonl")]) == 0
    assert SEEN == seen
    for new, expected in zip(lines(tmp_path / "new.jsonl"), lines(tmp_path / "judged" / "episodes.jsonl"), strict=True):
        assert new["return"] == pytest.approx(expected["return"])
        assert all(new[name] == expected[name] for name in ("agents", "infos", "seed"))


class Own(BaseException):
    pass


def fail(turn):
    raise Own("far")


def leave(turn):
    raise SystemExit(0)


def without_argument():
    return 1.0


CONSTANT = 5


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("fail", "fail raised Own: far (test_rescore.py, line"),
        ("leave", "leave raised SystemExit: 0"),
        ("without_argument", "without_argument raised TypeError"),
        ("CONSTANT", "not callable"),
        ("nothing", "cannot be loaded"),
    ],
)
def test_faulty_functions_are_one_line(tmp_path, capsys, name, fault):
    play(Recorded(make("collm/MiniBuild-v0", max_turns=1), tmp_path), [reference], 0)
    assert main(["rescore", str(tmp_path), "--reward-funcs", f"{__name__}:{name}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and fault in line
    if name not in ("CONSTANT", "nothing"):
        watch = FaultWatch(make("collm/MiniBuild-v0", max_turns=1, reward_funcs=[f"{__name__}:{name}"]))
        watch.reset(0, None)
        with pytest.raises(EnvironmentFault, match=re.escape(fault.partition(" ")[2])):
            watch.step(dict.fromkeys(watch.possible_agents, "hi"))


def test_incomplete_records_are_refused_in_one_line(tmp_path, capsys):
    play(Recorded(make("test/Asking-v0"), tmp_path), [asked] * 4, 0)
    file = tmp_path / "episodes.jsonl"
    (row,) = lines(file)

    def refusal(*functions, **changed):
        (tmp_path / "changed.jsonl").write_text(json.dumps(row | changed) + "\n")
        assert main(["rescore", str(tmp_path / "changed.jsonl"), "--reward-funcs", *functions]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    judge, joint, careless = (f"{__name__}:{name}" for name in ("judge", "joint", "careless"))
    assert "turn.task" in refusal(careless)
    assert "turn.joint" in refusal(joint)
    running = {agent: track | {"is_terminated": False} for agent, track in row["agents"].items()}
    assert "turn.is_last" in refusal(judge, is_complete=False, agents=running)
    assert all("turn.reward" in refusal(name, reward_funcs=["own"]) for name in (judge, "own"))
    assert "turn.transcripts" in refusal(judge, infos=[{"metric/cut_replies": 1.0}] * 4)
    assert "partners" in refusal("own", env_kwargs={"partners": {"asker_1": "random"}})
    assert "invalid content" in refusal("own", infos=[])
    file.write_text(2 * file.read_text())
    assert main(["rescore", str(file), "--reward-funcs", "own"]) == 2
    assert main(["rescore", str(tmp_path / "changed.jsonl"), "--reward-funcs", "own", "--out", str(file)]) == 2
    assert main(["export", str(file), str(tmp_path / "log.txt")]) == 2
    assert main(["export", str(file), str(tmp_path / "log.eval"), "--merge"]) == 2
    errors = capsys.readouterr().err
    assert "*.eval" in errors and "--merge" in errors
    assert "2 lines" in errors and f"--out {file} exists" in errors


def huge(turn):
    return 1.7e308


def test_rewards_whose_sum_is_not_finite_are_refused(tmp_path, capsys):
    play(Recorded(make("collm/MiniBuild-v0"), tmp_path), [reference] * 6, 0)
    out = tmp_path / "new.jsonl"
    assert main(["rescore", str(tmp_path), "--reward-funcs", f"{__name__}:huge", "--out", str(out)]) == 2
    assert "episode 0 add up to inf" in capsys.readouterr().err
    assert not out.exists()
