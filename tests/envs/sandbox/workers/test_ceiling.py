"""The common limit of many sandboxes and environments."""

import copy
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from collm.envs.coding.functions import HumanEval
from collm.envs.sandbox import Case, Sandbox, set_ceiling
from collm.envs.sandbox.workers.ceiling import Ceiling, num_processors, shared_ceiling

CODE = "def f(x):\n    return x + 1"
TESTS = "assert f(1) == 2\nassert f(2) == 3"


@pytest.fixture(autouse=True)
def ceiling_as_it_was() -> Iterator[None]:
    yield
    set_ceiling()


class Watched(Ceiling):
    most_runs = most_memory_mb = 0

    def __setattr__(self, name: str, value: int) -> None:
        super().__setattr__(name, value)
        self.__dict__["most_runs"] = max(self.most_runs, self.__dict__.get("num_runs", 0))
        self.__dict__["most_memory_mb"] = max(self.most_memory_mb, self.__dict__.get("memory_mb", 0))


def held_at_once(ceiling: Ceiling, sizes_mb: list[int]) -> None:
    def hold(memory_mb: int) -> None:
        with ceiling.taken(memory_mb):
            time.sleep(0.002)

    with ThreadPoolExecutor(len(sizes_mb)) as pool:
        list(pool.map(hold, sizes_mb))


def test_no_more_runs_go_on_at_once_than_the_ceiling_allows() -> None:
    ceiling = Watched(3, 1000)
    held_at_once(ceiling, [1] * 24)
    assert ceiling.most_runs == 3
    ceiling = Watched(100, 1000)
    held_at_once(ceiling, [300] * 24)
    assert ceiling.most_runs == 3 and ceiling.most_memory_mb == 900
    assert ceiling.num_runs == ceiling.memory_mb == 0
    ceiling = Watched(4, 100)
    held_at_once(ceiling, [10, 5000, 10, 5000] * 4)
    assert ceiling.most_memory_mb == 5000 and ceiling.num_runs == 0
    ceiling = Ceiling(1, 10)
    for _ in range(3):
        with pytest.raises(KeyError), ceiling.taken(5):
            raise KeyError
    assert ceiling.num_runs == 0


def test_defaults_follow_the_machine_and_many_sandboxes_share_one_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ceiling()
    assert shared_ceiling().max_runs == 2 * num_processors() and shared_ceiling().max_memory_mb > 100
    set_ceiling(max_runs=3, max_memory_mb=77)
    assert (shared_ceiling().max_runs, shared_ceiling().max_memory_mb) == (3, 77)
    for wrong in ({"max_runs": 0}, {"max_memory_mb": -1}):
        with pytest.raises(ValueError, match="at least 1"):
            set_ceiling(**wrong)
    ceiling = Watched(2, 1500)
    monkeypatch.setattr("collm.envs.sandbox.sandbox.shared_ceiling", lambda: ceiling)
    sandboxes = [Sandbox(2) for _ in range(3)]

    def play(number: int) -> bool:
        sandbox = sandboxes[number % 3]
        passed = sandbox.check(CODE, "f", [Case((number,), number + 1)]).all_passed
        return passed and sandbox.run_tests(CODE, TESTS, "f").all_passed

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(play, range(16)))
    for sandbox in sandboxes:
        sandbox.close()
    assert ceiling.most_runs == 2 and ceiling.most_memory_mb <= 1500


def test_a_sandbox_whose_workers_are_busy_keeps_no_other_from_running() -> None:
    set_ceiling(max_runs=2)
    busy, other = Sandbox(1), Sandbox(1)
    other.start()
    spin = "import time\ndef f(x):\n    time.sleep(0.15)\n    return x + 1"
    with busy, other:
        threads = [threading.Thread(target=busy.check, args=(spin, "f", [Case((1,), 2)])) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        assert other.check(CODE, "f", [Case((1,), 2)]).all_passed
        assert any(thread.is_alive() for thread in threads), "it has waited for those that wait for another's worker"
        for thread in threads:
            thread.join()


def test_sixty_four_environments_ask_at_once() -> None:
    env = HumanEval(max_turns=1)
    envs = [copy.deepcopy(env) for _ in range(64)]

    def play(number: int) -> float:
        made = envs[number]
        made.reset(seed=number)
        return made.step({agent: made.reference_reply(agent) for agent in made.agents})[1]["main_0"]

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(play, range(64))) == pytest.approx([4.0] * 64)
    assert len(env.sandbox.process_ids) <= 2 * env.sandbox.num_workers
    assert shared_ceiling().num_runs == 0
