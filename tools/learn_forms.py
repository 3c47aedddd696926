"""Learn word classes and frequent sequences of three classes from the abstracts of SciTLDR, and write `forms.json`.

    python tools/learn_forms.py scitldr/train.jsonl

Words with similar neighbours form one class: each of the `NUM_WORDS` most frequent words is a vector of the square
roots of its neighbours' relative frequencies, projected on 50 dimensions and clustered by k-means. The package's
training samples are read in addition to the abstracts, because they contain everyday words.
"""

from __future__ import annotations

import argparse
import base64
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collm.envs.writing.documents import forms
from collm.envs.writing.documents.lexicon import OWN

NUM_WORDS, NUM_NEIGHBOURS, NUM_CLASSES, NUM_DIMENSIONS, NUM_ROUNDS = 3_000, 250, 48, 50, 25
SOURCE = (
    "Word classes and sequences of three of them, counted in the abstracts of SciTLDR's training split (Cachola et al. "
    "2020, github.com/allenai/scitldr, Apache License 2.0) and in this package's own samples for training. No text of "
    "an abstract is in this file. Written by learn_forms.py."
)


def learn(texts: list[str]) -> dict[str, Any]:
    """Return the content of `forms.json`: classes and sequences learned from texts."""
    sentences = [sentence for text in texts for sentence in forms.sentences(text)]
    counts = Counter(token for sentence in sentences for token in sentence)
    frequent = [word for word, _ in counts.most_common()]
    vocabulary = [word for word in frequent if _is_open(word)][:NUM_WORDS]
    labels = _clustered(_vectors(sentences, vocabulary, frequent[:NUM_NEIGHBOURS]), vocabulary, counts)
    groups = [" ".join(word for word, label in zip(vocabulary, labels, strict=True) if label == c) for c in set(labels)]
    numbers = {name: number for number, name in enumerate(forms.class_names())}
    for number, group in enumerate(groups, len(numbers)):
        numbers.update(dict.fromkeys(group.split(), number))
    seen = {
        forms.number(numbers[token] if token in numbers else numbers[forms.class_name(token)] for token in window)
        for sentence in sentences
        for window in forms.windows(sentence)
    }
    known = zlib.compress(forms.encoded(seen), 9)
    return {"source": SOURCE, "classes": groups, "forms": base64.b85encode(known).decode()}


def _is_open(word: str) -> bool:
    return word != forms.PAUSE and not word[0].isdigit() and word not in OWN.fillers


def _vectors(sentences: list[list[str]], vocabulary: list[str], neighbours: list[str]) -> npt.NDArray[np.float64]:
    rows = {word: row for row, word in enumerate(vocabulary)}
    columns = {token: column for column, token in enumerate([*neighbours, forms.EDGE])}
    endings = {name: 2 * len(columns) + place for place, name in enumerate(forms.class_names())}
    table = np.zeros((len(rows), 2 * len(columns) + len(endings)))
    for sentence in sentences:
        for before, word, after in forms.windows(sentence):
            if word in rows:
                for side, token in enumerate((before, after)):
                    if token in columns:
                        table[rows[word], side * len(columns) + columns[token]] += 1
    for word, row in rows.items():
        table[row, endings[forms.class_name(word)]] = 1 + 0.25 * table[row].sum()
    left, sizes, _ = np.linalg.svd(np.sqrt(table / table.sum(1, keepdims=True)), full_matrices=False)
    vectors: npt.NDArray[np.float64] = left[:, :NUM_DIMENSIONS] * sizes[:NUM_DIMENSIONS]
    return vectors


def _clustered(vectors: npt.NDArray[np.float64], vocabulary: list[str], counts: Counter[str]) -> list[int]:
    weights = np.sqrt([counts[word] for word in vocabulary])
    chosen = np.random.default_rng(0).choice(
        len(vectors), min(NUM_CLASSES, len(vectors)), replace=False, p=weights / weights.sum()
    )
    centres = vectors[chosen]
    for _ in range(NUM_ROUNDS):
        labels = ((vectors[:, None] - centres) ** 2).sum(-1).argmin(1)
        for number in set(labels.tolist()):
            members = labels == number
            centres[number] = np.average(vectors[members], axis=0, weights=weights[members])
    return [int(label) for label in labels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("abstracts", type=Path, help="train.jsonl of SciTLDR")
    rows = [json.loads(line) for line in parser.parse_args().abstracts.read_text(encoding="utf-8").splitlines()]
    texts = [" ".join(row["source"]) for row in rows]
    for field, name in (("post", "posts"), ("abstract", "abstracts")):
        sample = forms.FORMS_FILE.parent / "samples" / f"{name}_train.jsonl"
        texts += [json.loads(line)[field] for line in sample.read_text(encoding="utf-8").splitlines()]
    forms.FORMS_FILE.write_text(json.dumps(learn(texts), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
