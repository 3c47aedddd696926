"""Extraction of code from completions."""

import ast
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.coding.extraction import code_in
from collm.envs.coding.syntax import function_named, needed_statements, parsed, source

CODE = "def aux(x):\n    return x + 1"


def defined(completion):
    return [node.name for node in code_in(completion).statements if isinstance(node, ast.FunctionDef)]


def test_the_function_is_found_in_any_surrounding_text():
    for completion in [
        CODE,
        f"```python\n{CODE}\n```",
        f"```\n{CODE}\n```",
        f"```Python\n{CODE}\n```\n",
        f"~~~py\n{CODE}\n~~~",
        f"````python\n{CODE}\n````",
        f"```python\n{CODE}",
        f"Sure! Here is the helper:\n\n```python\n{CODE}\n```\n\nIt adds one (see `aux`).",
        f"Sure! Here is the helper:\n\n{CODE}\n\nIt adds one.",
        f"The helper:\n{CODE}\nprint(aux(2)) gives 3.",
        "The helper:\n\n    def aux(x):\n        return x + 1\n\nIt adds one.",
        "1. First, the code:\n   ```python\n   def aux(x):\n       return x + 1\n   ```\n2. Then, run it.",
        f"```bash\npip install x\n```\n```python\n{CODE}\n```",
        f"```python\nimport math\n```\nand\n```python\n{CODE}\n```",
        CODE.replace("\n", "\r\n"),
        f"```python\n{CODE}\n\ndef main(x):\n    return (aux(x) +\n```",
        f"Use it so: ```python\n{CODE}\n``` ok",
    ]:
        assert defined(completion) == ["aux"]
        found = needed_statements(code_in(completion).statements, "aux")
        assert source(found) == CODE


def test_multi_line_statements_stay_whole_and_broken_definitions_are_kept():
    text = 'Here:\ndef aux(x):\n    return """one\ntwo\nthree"""\n\nThat is it, done.'
    assert [type(node).__name__ for node in code_in(text).statements] == ["FunctionDef"]
    text = "It is:\nimport functools\n@functools.cache\ndef aux(\n    x,\n):\n    return x\n\nas you see it."
    assert [type(node).__name__ for node in code_in(text).statements] == ["Import", "FunctionDef"]
    text = 'def aux(x):\n    return """a\n```\nb"""'  # a fence inside a string does not end a longer one
    expected = parsed('def aux(x):\n    return "a\\n```\\nb"')
    assert source(code_in(f"````\n{text}\n````").statements) == source(expected)
    for text in ("", "No code here.", "I define a function. def is a word", "```\n```", "import antic"):
        assert defined(text) == []
    code = code_in(f"```python\n{CODE}\n\ndef main(x):\n    return (aux(x) +\n```")
    assert code.broken.startswith("def main(x):") and len(code.statements) == 1


HOSTILE = [
    "(" * 5000,
    "-" * 10_000 + "1",
    "def aux(x):\n    return " + "not " * 4000 + "x",
    "x = 1" + "+1" * 5000,
    "lambda:" * 2000 + "1",
    "def aux(x):\n" * 3000,
    "```python\n" * 3000,
    "def aux(:\n```\n" * 1000,
    "@\n" * 6000,
    "a = (\n" * 3000,
    "class A:\n" + "    def f(self):\n" * 3000,
    "def aux(x): return '\x00'",
    "def aux(x): return '\\ud800'",
    "def aux(x): return " + "9" * 5000,
    '"""' * 4000,
    "if a: pass\n" + "elif a: pass\n" * 1200,
    "<think>" * 2000 + "</think>" * 1000,
    "\t \t" * 3000 + "def aux(x): return x",
    "from " * 3000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_data_and_takes_little_time(text):
    start = time.process_time()
    code = code_in(text)
    source(needed_statements(code.statements, "aux"))
    assert time.process_time() - start < 2


FRAGMENTS = [
    *("def aux(x):\n", "    return x\n", "class A:\n", "@a\n", "x = ", "import a\n", "```", "python\n", "~~~\n"),
    *('"""', "'", "(", "\\\n", "\x00", "\ud7ff", "é", "\r", "\x0c", "#", "f'{"),
]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300) | st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=60).map("".join))
def test_any_text_has_a_result_that_parses_again(text):
    code = code_in(text)
    written = source(code.statements)
    assert written is not None and parsed(written) is not None
    needed = needed_statements(code.statements, "aux")
    assert (function_named(code.statements, "aux") is None) or needed


@given(st.text(alphabet=st.characters(exclude_characters="`~<", exclude_categories=["Cs"]), max_size=80))
def test_a_fenced_function_is_found_in_any_prose(prose):
    assert "aux" in defined(f"{prose}\n```python\n{CODE}\n```\n{prose}")


class Cycle:
    """Garbage whose collection runs Python code."""

    def __init__(self):
        self.own = self

    def __del__(self):
        sum(range(100))


def test_many_threads_parse_code_concurrently():
    nested = f"def f(x):\n    return {'(' * 40}x{' + 1)' * 40}"

    def statements_beside_garbage(_):
        for _ in range(5):
            Cycle()
        return len(parsed(nested))

    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(1)  # a collection may switch threads in the middle of a tree
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(statements_beside_garbage, range(200))) == [1] * 200
    finally:
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
