"""The atlas: 1,709 articles of true facts, 30 kinds of question on them, and a country that does not exist.

Each fact stands in two articles in different words, and no training question shares an entity or an answer with a dev or test question. The
facts were compiled by hand from general knowledge (CC0-1.0).

``python -m realm.experiments.atlas DIRECTORY`` writes what recipes/from-nothing.toml learns from."""

import argparse
import json
import lzma
from importlib.resources import files
from pathlib import Path

ASKED = ("countries/", "us_states/")
"""Kinds of fact that a start from nothing asks about: with all 30, fine-tuning ends before the reader heeds the question."""


def read_atlas(asked: tuple[str, ...] = ()) -> dict[str, str]:
    """The text of each file of the atlas by its name; only questions of the kinds that begin with one of ``asked`` (default all)."""
    data: dict[str, str] = json.loads(lzma.decompress((files("realm.experiments") / "atlas.json.xz").read_bytes()))
    for name in [name for name in data if asked and name in ("qa_train.jsonl", "qa_dev.jsonl", "qa_test.jsonl")]:
        data[name] = "".join(line for line in data[name].splitlines(keepends=True) if json.loads(line)["kind"].startswith(asked))
    return data


def write_atlas(directory: Path, asked: tuple[str, ...] = ()) -> None:
    """Write documents, questions, gazetteer and the invented country into a directory. ``asked`` as for ``read_atlas``."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in read_atlas(asked).items():
        (directory / name).write_bytes(text.encode("utf-8"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the atlas that recipes/from-nothing.toml learns from.")
    parser.add_argument("directory", type=Path)
    write_atlas(parser.parse_args().directory, ASKED)
