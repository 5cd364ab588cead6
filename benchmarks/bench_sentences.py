"""Do our sentence boundaries agree with syntok's, and how much faster are they found? On real articles, both in one run, taking turns.

Boundaries are ends of sentences. `agreement` is the share of all boundaries, found by either, that both find; `inner` leaves out those at
line ends, which are certain. Prints the kinds of differences and, as its last line, one JSON object.

    python benchmarks/bench_sentences.py --documents simplewiki_2021.jsonl.xz --mb 20
"""

import argparse
import json
import lzma
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from syntok import segmenter
from syntok.tokenizer import Tokenizer

from common import result
from realm.text.canonical import canonical_text
from realm.text.sentences import split_sentences

SYNTOK = Tokenizer(replace_not_contraction=False)


def lines(text: str) -> list[tuple[int, str]]:
    """(start, line) of every line that is not empty."""
    found, start = [], 0
    for line in text.split("\n"):
        if line.strip():
            found.append((start, line))
        start += len(line) + 1
    return found


def syntok_ends(text: str) -> set[int]:
    """Where syntok's sentences end, line by line."""
    sentences = ((start, sentence) for start, line in lines(text) for sentence in segmenter.segment(SYNTOK.tokenize(line)) if sentence)
    return {start + sentence[-1].offset + len(sentence[-1].value) for start, sentence in sentences}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--documents", type=Path, default=Path(os.environ.get("REALM_DATA", "data")) / "corpus" / "simplewiki_2021.jsonl.xz"
    )
    parser.add_argument("--mb", type=float, default=4.0)
    arguments = parser.parse_args()
    seconds, size = {"syntok": 0.0, "ours": 0.0}, 0
    both = either = inner_both = inner_either = 0
    kinds: Counter[str] = Counter()
    opener: Any = lzma.open if arguments.documents.suffix == ".xz" else open
    with opener(arguments.documents, "rb") as source:
        for line in source:
            text = canonical_text(json.loads(line)["text"])
            begin = time.perf_counter()
            theirs = syntok_ends(text)
            middle = time.perf_counter()
            ours = {end for _, end in split_sentences(text)}
            seconds["syntok"] += middle - begin
            seconds["ours"] += time.perf_counter() - middle
            certain = {start + len(row.rstrip()) for start, row in lines(text)}
            both, either = both + len(ours & theirs), either + len(ours | theirs)
            inner_both, inner_either = inner_both + len((ours & theirs) - certain), inner_either + len((ours | theirs) - certain)
            kinds.update(f"only syntok, after {text[end - 1]!r}" for end in theirs - ours - certain)
            kinds.update(f"only ours, after {text[end - 1]!r}" for end in ours - theirs - certain)
            size += len(line)
            if size >= arguments.mb * 1e6:
                break
    for kind, count in kinds.most_common(8):
        print(f"{count:6d} {kind}")
    rows = [
        {"method": method, "seconds": round(value, 2), "mb_per_second": round(size / 1e6 / value, 2)} for method, value in seconds.items()
    ]
    shares = {"agreement": round(both / either, 5), "inner": round(inner_both / inner_either, 5), "boundaries": either}
    ratios = {"speed": round(seconds["syntok"] / seconds["ours"], 2), **shares}
    print(json.dumps(result("sentences", 1, mb=arguments.mb, rows=rows, ratios=ratios)))


if __name__ == "__main__":
    main()
