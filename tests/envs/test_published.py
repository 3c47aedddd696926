"""Prompts of variant="published", and prompts that are read from a copy of the published repositories."""

import pytest

from collm.envs import make
from collm.envs.templates import Originals, original_prompts

BUILTIN = {"data": "builtin", "split": "all"}
TASKS = [
    *((f"{name}-v1", {}) for name in ("HumanEval", "MBPP", "CoopHumanEval", "ClassEval")),
    *((f"{name}-v2", {}) for name in ("TLDR", "ArxivExpansion")),
    *((f"{name}-v2", BUILTIN) for name in ("StrBuild", "HouseBuild")),
]


def read(id, **kwargs):
    env = make(f"collm/{id}", **kwargs)
    observations, _ = env.reset(seed=2)
    return env.unwrapped, {agent: str(text) for agent, text in observations.items()}


@pytest.mark.parametrize(("id", "kwargs"), TASKS)
def test_published_prompts_state_neither_gates_nor_scores(id, kwargs):
    """The originals name no length, score, number of turns or partner's blocks, except what the table in docs lists."""
    world, texts = read(id, variant="published", **kwargs)
    _, own = read(id, **kwargs)
    assert read(id, variant="published", prompts=None, **kwargs)[1] == texts
    source = str(world.task.get("abstract", "")) if isinstance(world.task, dict) else ""
    for agent, text in texts.items():
        assert text != own[agent]
        for gate in ("at least", "140", "128", "256", "two to three times", "turns", "Rules of the score"):
            assert gate not in text.replace(source, "")


WRITING = '''
import nothing_that_exists

def summary_agent_formatter(example):
    prompt = example.get("prompt", "")
    prompt_text = f"""Shorten this.

{prompt}

- In one sentence
"""
    return prompt_text

def elaboration_agent_formatter(example):
    prompt = example.get("prompt", "")
    return f"""Lengthen this: {prompt}"""
'''
CODE = '''
def aux_function_formatter(example):
    prompt_text = f"""Help with {prompt} by aux(...)"""

def main_function_formatter(example):
    prompt_text = f"""Solve {prompt}: def {entry_point}({params_str}):\\n # code"""
'''
CLASSES = '''
def build_agent_prompt(skeleton, class_name, assigned_methods):
    assigned_text = "\\n".join(f"- {m}" for m in assigned_methods)
    return textwrap.dedent(
        f"""
        Write '{class_name}':
        {assigned_text}
        {skeleton.strip()}
        """
    ).strip()
'''
WORDS = '''
DEFAULT_SYSTEM_PROMPT = (
    "Commands "
    "only."
)
DEFAULT_USER_TEMPLATE_AGENT1 = """You are the first.
Write blocks at '#'.
Target grid (top-down rows):
{target_ascii}
From {world_bbox_from} to {world_bbox_to} with
{block_agent1_lines}
"""
DEFAULT_USER_TEMPLATE_AGENT2 = """You are the second. {target_ascii}
{block_agent2_lines}"""
'''
HOUSES = '''
DEFAULT_SYSTEM_PROMPT = "Commands only."
DEFAULT_USER_TEMPLATE_AGENT1 = """Layers y: {{(x1, z1, x2, z2 block)}}
{layers_text}
{block_agent1_lines} in {world_bbox_from}..{world_bbox_to}"""
DEFAULT_USER_TEMPLATE_AGENT2 = DEFAULT_SYSTEM_PROMPT = "Second. {layers_text}"
'''


@pytest.fixture
def checkout(tmp_path):
    def written(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").write_text(text)
        return tmp_path

    return written


def test_writers_read_the_prompts_of_a_copy_of_the_repository_which_is_not_run(checkout, tmp_path):
    touched = tmp_path / "touched"
    folder = checkout(train_magrpo=f"open({str(touched)!r}, 'w')\n{WRITING}")
    env, texts = read("TLDR-v2", prompts=folder)
    post = env.task["post"]
    first = f"Shorten this.\n\n{post}\n\n- In one sentence\n\n"
    assert texts == {"writer_0": first, "writer_1": f"Lengthen this: {post}\n"}
    assert not touched.exists()
    _, texts = read("TLDR-v2", variant="published", prompts={"writer_0": "Sum up: {source}"})
    assert texts["writer_0"].startswith("Sum up: ") and "Two writers" in texts["writer_1"]


def test_programmers_read_the_parameters_of_the_function_or_their_methods_as_a_list(checkout):
    env, texts = read("HumanEval-v1", prompts=str(checkout(train_magrpo=CODE)))
    problem = env.problem
    assert texts["helper_0"] == f"Help with {problem.prompt} by aux(...)\n"
    assert texts["main_0"] == f"Solve {problem.prompt}: {problem.head}:\n # code\n"
    env, texts = read("ClassEval-v1", prompts=checkout(utils__prompting=CLASSES))
    own = env.task.shares[1]
    listed = "\n".join(f"- {name}" for name in own)
    assert texts["programmer_1"] == f"\nWrite '{env.task.name}':\n{listed}\n{env.task.skeleton}\n\n"


@pytest.mark.parametrize("is_shown", [True, False])
def test_builders_of_words_read_them_without_the_target_if_it_is_hidden(checkout, is_shown):
    folder = checkout(str_build__utils__prompting=WORDS)
    env, texts = read("StrBuild-v2", prompts=folder, shows_target=is_shown, **BUILTIN)
    rows = "\n".join(env.task.rows)
    x, y, _ = env.task.box.upper
    about = f"Write blocks at '#'.\nTarget grid (top-down rows):\n{rows}\n" if is_shown else ""
    blocks = f"From [0,0,0] to [{x},{y},0] with\n- oak_planks\n- stone\n- air\n"
    assert texts["builder_0"] == f"Commands only.\nYou are the first.\n{about}{blocks}\n"
    assert ("You are the second." in texts["builder_1"]) == is_shown  # the line with the target is left out


def test_builders_of_houses_read_slices_and_limits(checkout):
    second = HOUSES.replace("DEFAULT_USER_TEMPLATE_AGENT2 = DEFAULT_SYSTEM_PROMPT", "DEFAULT_USER_TEMPLATE_AGENT2")
    folder = checkout(house_build__utils__prompting=second)
    env, texts = read("HouseBuild-v2", prompts=folder, **BUILTIN)
    house = env.task
    fill = next(each for each in house.rectangles if each.y1 == house.box.y and each.block)
    shown = f"y={fill.y1}: {{({fill.x1}, {fill.z1}, {fill.x2}, {fill.z2} {house.blocks[fill.block]})"
    assert "Layers y: {(x1, z1, x2, z2 block)}\n" in texts["builder_0"] and shown in texts["builder_0"]
    block, count = next((block, count) for block, count in house.stock.items() if count)
    assert f"- {house.blocks[block]}: {count}" in texts["builder_1"].partition("no limit):")[2]


def test_a_file_without_the_prompts_is_refused(tmp_path):
    other = 'def make_prompt():\n    f"{other}"'
    for text, named in [("def broken(", "copy.py"), ("x = 1", "make_prompt"), (other, "other")]:
        (tmp_path / "copy.py").write_text(text)
        with pytest.raises(ValueError, match=named):
            original_prompts(tmp_path, Originals("copy.py", {"a": "make_prompt"}, {"prompt": "{source}"}))
