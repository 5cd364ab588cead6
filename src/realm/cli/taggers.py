"""The verbs about salient-span taggers."""

from pathlib import Path
from typing import Annotated

import tyro

from realm.cli import show

Labelled = Annotated[Path, tyro.conf.arg(metavar="FILE")]


def tagger_eval(file: Labelled, /, *, tagger: str = "", corpus: Path | None = None, json: bool = False) -> None:
    """Score a tagger on sentences with marked spans, whatever their type.

    Args:
        file: BIO JSONL ({"tokens", "tags"}) or CoNLL columns; .gz and .xz too.
        tagger: a tagger as for realm corpus build; empty is the corpus's own, or without a corpus the default.
        corpus: the corpus that the tagger learns from; without it, it learns from the text of FILE, not from its labels.
        json: print one JSON object as the last line.
    """
    from realm.corpus.tagging.evaluation import evaluate_tagger

    found = evaluate_tagger(file, tagger, corpus)
    if not json:
        show.facts(found)
    show.last_line(found, json)


def tagger_train(file: Labelled, /, *, out: Path, epochs: int = 6, json: bool = False) -> None:
    """Train a small tagger on sentences with marked spans; use it as --tagger perceptron:DIR. The same file gives the same weights.

    Args:
        file: BIO JSONL ({"tokens", "tags"}) or CoNLL columns; .gz and .xz too.
        out: the tagger's directory; must not exist.
        epochs: times that every sentence is seen.
        json: print one JSON object as the last line.
    """
    from realm.corpus.tagging.labelled import read_labelled
    from realm.corpus.tagging.perceptron import check_new, train_perceptron

    check_new(out)
    sentences = read_labelled(file)
    tagger = train_perceptron(sentences, epochs)
    tagger.save(out)
    found = {"file": str(file), "sentences": len(sentences), "labels": list(tagger.labels), "tagger": f"perceptron:{out}"}
    if not json:
        show.facts(found)
    show.last_line(found, json)
