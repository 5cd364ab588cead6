"""Taggers: names by casing, dates and numbers, gazetteers, combinations, saved state."""

import json
import lzma
from itertools import accumulate, takewhile

import pytest
from small import learned_from

from realm.documents.spans.dates import DateNumberTagger
from realm.documents.spans.spans import CombinedTagger, GazetteerTagger, TaggedSpan
from realm.documents.spans.specs import TaggerPlan, load_tagger, write_state
from realm.documents.spans.truecase import CasingCounts, TruecaseTagger
from realm.errors import CorpusError, DataError


def marked(tagger, text):
    return [text[span.start : span.end] for span in tagger.tag(text)]


@pytest.fixture(scope="module")
def truecase():
    casing = CasingCounts()
    casing.add( [
        "We saw London and the Thames when the king came.", "He met Ada Lovelace in Paris, where the bank was closed.",
        "A dog ran from London to Paris in the rain while it was wet.",
        "She said that in Rome the painter Vincent van Gogh is in the news.",
        "Later the King spoke and the king left and the king slept.",
    ])  # fmt: skip
    return TruecaseTagger(casing.table())


@pytest.mark.parametrize(("text", "names"), [
    ("The river Thames runs through London.", ["Thames", "London"]), ("London is wet.", ["London"]),
    ("Dog food is cheap in Zanzibar.", ["Zanzibar"]), ("The Bank of England is in London.", ["Bank of England", "London"]),
    ("It shows Vincent van Gogh at work.", ["Vincent van Gogh"]),
    ("He read J. R. R. Tolkien's books.", ["J. R. R. Tolkien"]), ("It belongs to NASA.", ["NASA"]),
    ("Zyxco Holdings was sold.", ["Zyxco Holdings"]), ("Then the King came.", []),
    ("THE BANK WAS CLOSED IN LONDON TODAY", []), ("When I was there it rained.", []), ("", []),
])  # fmt: skip
def test_truecase(truecase, text, names):
    assert marked(truecase, text) == names


def test_bare_months_are_dates_and_the_longest_span_wins(truecase):
    assert truecase.tag("We met in April.") == [TaggedSpan(10, 15, "date")]
    tagger = CombinedTagger([GazetteerTagger(["march"]), DateNumberTagger(), TruecaseTagger({})])
    assert marked(tagger, "The 12 March 1969 Treaty of Rome began a march.") == ["12 March 1969", "Treaty of Rome", "march"]


def test_gazetteer(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("# currencies\npound sterling\npound\nSwiss  franc\nrock'n'roll\n\n", encoding="utf-8")
    tagger = GazetteerTagger.from_file(path)
    assert marked(tagger, "Pound sterling, a pound, compounds, Swiss franc, swiss franc, rock'n'roll.") == [
        "Pound sterling", "pound", "Swiss franc", "rock'n'roll",
    ]  # fmt: skip
    (tmp_path / "empty.txt").write_text("# nothing\n")
    for bad in ("empty.txt", "missing.txt"):
        with pytest.raises(DataError, match="one phrase a line"):
            GazetteerTagger.from_file(tmp_path / bad)


def test_state_survives_saving(tmp_path):
    (tmp_path / "phrases.txt").write_text("pound sterling\n")
    plan = TaggerPlan(gazetteer=tmp_path / "phrases.txt")
    chinese = ["".join(map(chr, range(0x5000, 0x5100))), *["在北京大学。", "去北京大学！", "看北京大学、", "到北京大学？"] * 2]
    tagger = learned_from(plan, ["We saw London and the pound sterling.", *chinese])
    path = tmp_path / "tagger.json"
    write_state(path, tagger.state())
    loaded = load_tagger(path)
    assert loaded.state() == tagger.state()
    assert marked(loaded, "In 1969 London had the pound sterling.") == ["1969", "London", "pound sterling"]
    assert marked(loaded, "他于1969年来到北京大学。") == ["1969年", "北京大学"]
    path.write_text('{"type": "other"}')
    with pytest.raises(CorpusError, match="Build the corpus again"):
        load_tagger(path)


def test_names_by_casing_on_real_text(data_dir):
    with lzma.open(data_dir / "ner" / "wikigold_part.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    texts, correct, touching, found, marked_ = [" ".join(row["tokens"]) for row in rows], 0, 0, 0, 0
    tagger = learned_from(TaggerPlan("truecase"), texts)
    for row, text in zip(rows, texts, strict=True):
        ends = list(accumulate(len(token) + 1 for token in row["tokens"]))
        starts = [0, *ends]
        gold = set()
        for begin, tag in enumerate(row["tags"]):
            if tag.startswith("B-"):
                inside = takewhile(lambda tag: tag.startswith("I-"), row["tags"][begin + 1 :])
                gold.add((starts[begin], ends[begin + len(list(inside))] - 1))
        spans = {(span.start, span.end) for span in tagger.tag(text) if span.kind == "name"}
        found, marked_, correct = found + len(spans), marked_ + len(gold), correct + len(gold & spans)
        touching += sum(any(start < other_end and other < end for other, other_end in gold) for start, end in spans)
    assert 2 * correct / (found + marked_) >= 0.78 and touching / found >= 0.90  # F1, and predicted spans that touch a marked one
