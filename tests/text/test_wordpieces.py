"""Where words begin and what is punctuation, in the three ways that vocabularies mark it."""

import pytest
from tokenizers import Tokenizer, models

from realm.text.tokenizer import TextTokenizer
from realm.text.wordpieces import word_table

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def table(entries):
    vocabulary = {entry: number for number, entry in enumerate([*SPECIAL, *entries])}
    words = word_table(TextTokenizer(Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))))
    assert len(words.starts) == len(words.letters) == len(vocabulary)
    return {entry: (bool(words.starts[vocabulary[entry]]), bool(words.letters[vocabulary[entry]])) for entry in entries}


@pytest.mark.parametrize(("entries", "expected"), [
    (["river", "##bank", "##s", ".", "##", "4", "河"], [(1, 1), (0, 1), (0, 1), (1, 0), (0, 0), (1, 1), (1, 1)]),
    (["▁river", "bank", ".", "▁", "河", "▁4"], [(1, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]),
    (["Ġriver", "bank", ","], [(1, 1), (0, 1), (1, 0)]), (["river", "bank", "."], [(1, 1), (1, 1), (1, 0)]),
])  # fmt: skip
def test_marks_of_vocabularies(entries, expected):
    assert table(entries) == {entry: (bool(a), bool(b)) for entry, (a, b) in zip(entries, expected, strict=True)}


def test_ids_may_have_gaps():
    vocabulary = {entry: number for number, entry in enumerate([*SPECIAL, "river", "##s"])} | {"bank": 20}
    words = word_table(TextTokenizer(Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))))
    assert len(words.starts) == 21 and words.starts[20] and not words.letters[12]
