"""`collm imitate MODULE:FUNCTION OUT`: make a start checkpoint from demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tyro.conf import Positional

from ..._functions import load_function
from ..._ownership import new_folder, refuse_full_folder
from ..._ranges import Checked, Count, Positive
from ..._terminal import print_line, terminal
from ...agents.config import TINY, ModelConfig
from ..arguments import parsed
from ..errors import check_folder, refusals

EXAMPLES = ("collm imitate collm.envs.games.mini_shift:demonstration starts/shift",)


@dataclass(frozen=True, kw_only=True)
class ImitateArguments(Checked):
    """Train a model on demonstrations of scripted players, and write it as a start checkpoint for `--model`.

    Noisy players teach legal replies and leave something to learn."""

    demonstration: Positional[str]
    """Function as package.module:function. It takes a `random.Random`, plays one episode, and returns the messages of
    each agent: {agent: env.step(...)[0][agent].messages}. The model learns the messages with role "assistant"."""
    out: Positional[Path]
    """New or empty folder for the model and its tokenizer."""
    model: str = TINY
    """Model to train: "tiny", a folder, or a name on the hub."""
    num_updates: Count = 400
    """Number of updates."""
    batch_size: Count = 32
    """Sequences per update. Each agent of an episode gives one sequence."""
    learning_rate: Positive = 1.5e-3
    """Peak learning rate of AdamW."""
    seed: int = 1
    """Seed of the demonstrations."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ImitateArguments, "imitate", args, examples=EXAMPLES)
    import torch  # late imports: help needs no torch

    from ...agents.language.imitation import demonstrated, imitate, save
    from ...agents.loading import check_models, load_language_model
    from ...algorithms.memory.devices import check_counts
    from ...algorithms.runs.files import explained

    with refusals():
        check_counts({"batch_size": arguments.batch_size})
        check_folder(arguments.out, "OUT")
        refuse_full_folder(arguments.out)
        demonstrate = load_function(arguments.demonstration)
        demonstrated(demonstrate, Random(arguments.seed))
        config = ModelConfig(model=arguments.model, device="cpu")
        check_models(config, 1)
        model = load_language_model(config, arguments.model)

    def on_update(update: int, loss: float) -> None:
        if update % 50 == 0 or update == arguments.num_updates:
            terminal().print(f"update {update}/{arguments.num_updates}  loss {loss:.3f}", highlight=False)

    torch.set_num_threads(1)  # more threads change the order of sums, and so the weights
    imitate(
        model,
        demonstrate,
        num_updates=arguments.num_updates,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        on_update=on_update,
    )
    with explained(arguments.out), new_folder(arguments.out) as new:
        save(model.base, model.encoder.tokenizer, new)
    print_line(f"model: {arguments.out}")
