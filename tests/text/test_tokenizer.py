"""The tokenizer: training is a function of the texts, saving keeps it, offsets are exact, AutoTokenizer reads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from realm.errors import ConfigError, DataError
from realm.text.tokenizer import SpecialTokens, TextTokenizer, train_wordpiece

TEXTS = [
    "The pound sterling is the currency of the United Kingdom.",
    "Café Müller opened in 1978; 東京 is far.",
    "Banana bandana banal.",
] * 3


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_wordpiece(TEXTS, 300)


def test_special_tokens_come_first(tokenizer: TextTokenizer) -> None:
    assert tokenizer.special == SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert tokenizer.token(4) == "[MASK]"
    assert tokenizer.vocab_size <= 300
    with pytest.raises(KeyError):
        tokenizer.token(10_000)


def test_round_trip(tokenizer: TextTokenizer) -> None:
    (ids,) = tokenizer.encode(["the currency of the united kingdom"])
    assert tokenizer.decode(ids) == "the currency of the united kingdom"
    assert tokenizer.encode(["", "zzz ☃"])[0] == []
    assert tokenizer.special.unk in tokenizer.encode(["☃"])[0]


def test_offsets_count_code_points(tokenizer: TextTokenizer) -> None:
    text = "The 🏦 of Café Müller, 東京"
    ids, offsets = tokenizer.encode_offsets(text)
    assert len(ids) == len(offsets)
    assert "".join(text[start:end] for start, end in offsets) == "".join(text.split())


def test_case_folding_is_an_option() -> None:
    cased = train_wordpiece(TEXTS, 300, lowercase=False)
    assert cased.encode(["The"]) != cased.encode(["the"])


def test_saving_keeps_the_hash(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = TextTokenizer.load(tmp_path)
    assert (loaded.sha256, loaded.special) == (tokenizer.sha256, tokenizer.special)
    assert TextTokenizer.load(tmp_path / "tokenizer.json").sha256 == tokenizer.sha256


def test_auto_tokenizer_reads_what_we_save(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert auto.mask_token_id == tokenizer.special.mask
    assert auto("the currency")["input_ids"] == [2, *tokenizer.encode(["the currency"])[0], 3]
    again = TextTokenizer.from_pretrained(str(tmp_path))
    assert (again.special, again.encode(TEXTS)) == (tokenizer.special, tokenizer.encode(TEXTS))


def test_training_is_deterministic_across_processes_and_threads() -> None:
    script = (
        "import random\n"
        "from realm.text.tokenizer import train_wordpiece\n"
        "r = random.Random(0)\n"
        "texts = [' '.join(''.join(r.choices('abcdefghij日é,', k=r.randint(1, 8))) for _ in range(100)) for _ in range(100)]\n"
        "print(train_wordpiece(texts, 1000).sha256)\n"
    )
    hashes = set()
    for threads in ("1", "2", "2"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        hashes.add(subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(hashes) == 1


def test_errors_name_the_cure(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no tokenizer here"):
        TextTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="not a tokenizer file"):
        TextTokenizer.load(tmp_path)
    with pytest.raises(DataError, match="no pad token"):
        TextTokenizer(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")))
    with pytest.raises(ConfigError, match="vocab_size"):
        train_wordpiece(TEXTS, 5)
    with pytest.raises(DataError, match="no text"):
        train_wordpiece(["", "  "], 300)
