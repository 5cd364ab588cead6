"""The verbs about salient-span taggers."""

from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Json


def tagger_eval(
    file: Annotated[Path, tyro.conf.arg(metavar="FILE")], /, *, tagger: str = "", corpus: Path | None = None, json: Json = False
) -> None:
    """Score a tagger on sentences with marked spans, whatever their type.

    Args:
        file: BIO JSONL ({"tokens", "tags"}) or CoNLL columns; .gz and .xz too.
        tagger: a tagger as for realm corpus build; empty is the corpus's own, or without a corpus the default.
        corpus: the corpus that the tagger learns from; without it, it learns from the text of FILE, not from its labels.
    """
    from realm.corpus.tagging.evaluation import evaluate_tagger

    show.result(evaluate_tagger(file, tagger, corpus), json)
