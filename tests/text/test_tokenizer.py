"""The tokenizer: training is a function of the texts, saving keeps it, offsets are exact, AutoTokenizer reads it."""

import os
import subprocess
import sys

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
def tokenizer():
    return train_wordpiece(TEXTS, 300)


def test_round_trip_with_special_tokens_first(tokenizer):
    assert tokenizer.special == SpecialTokens(pad=0, unk=1, cls=2, sep=3, mask=4)
    assert tokenizer.token(4) == "[MASK]"
    assert tokenizer.vocab_size <= 300
    with pytest.raises(KeyError):
        tokenizer.token(10_000)
    (ids,) = tokenizer.encode(["the currency of the united kingdom"])
    assert tokenizer.decode(ids) == "the currency of the united kingdom"
    assert tokenizer.encode(["", "zzz ☃"])[0] == []
    assert tokenizer.special.unk in tokenizer.encode(["☃"])[0]


def test_offsets_count_code_points_and_case_folding_is_an_option(tokenizer):
    text = "The 🏦 of Café Müller, 東京"
    ids, offsets = tokenizer.encode_offsets(text)
    assert len(ids) == len(offsets)
    assert "".join(text[start:end] for start, end in offsets) == "".join(text.split())
    cased = train_wordpiece(TEXTS, 300, lowercase=False)
    assert cased.encode(["The"]) != cased.encode(["the"])


def test_what_we_save_is_read_by_us_and_by_auto_tokenizer(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    loaded = TextTokenizer.load(tmp_path)
    assert (loaded.sha256, loaded.special) == (tokenizer.sha256, tokenizer.special)
    assert TextTokenizer.load(tmp_path / "tokenizer.json").sha256 == tokenizer.sha256
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert auto.mask_token_id == tokenizer.special.mask
    assert auto("the currency")["input_ids"] == [2, *tokenizer.encode(["the currency"])[0], 3]
    again = TextTokenizer.from_pretrained(str(tmp_path))
    assert (again.special, again.encode(TEXTS)) == (tokenizer.special, tokenizer.encode(TEXTS))


def test_training_is_deterministic_across_processes_and_threads():
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


def test_errors_name_the_cure(tmp_path):
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


CHINESE = [
    "战国无双是由光荣开发的游戏，丰富游戏内的剧情。" + "".join(map(chr, range(0x4E00 + 40 * n, 0x4E00 + 40 * n + 40))) for n in range(20)
]
KOREAN = ["임종석은 여의도에서 농민 시위를 주도했다. KBS가 1989년 2월에 보도했다."] * 5


def test_no_han_character_is_lost_where_there_are_many():
    tokenizer = train_wordpiece(CHINESE, 1200)  # more characters than a quarter of the entries
    assert all(tokenizer.special.unk not in ids for ids in tokenizer.encode(CHINESE))
    assert train_wordpiece([*TEXTS * 20, "錣"], 300).encode(["錣"])[0], "rare ones of other texts have no claim"


def test_syllables_of_hangul_are_not_lost_and_new_ones_are_spelled():
    tokenizer = train_wordpiece(KOREAN, 400)
    _, offsets = tokenizer.encode_offsets("임종석이 KBS를")
    assert ["임종석이 KBS를"[start:end] for start, end in offsets][:4] == list("임종석이")
    assert tokenizer.cuts_characters
    assert all(tokenizer.special.unk not in found for found in tokenizer.encode([*KOREAN, "석종임"]))
    tokenizer = train_wordpiece(["각 난 돌 밥 국 논 길"] * 5, 300)
    ids, offsets = tokenizer.encode_offsets("갈")
    assert len(ids) > 1 and tokenizer.special.unk not in ids
    assert set(offsets) == {(0, 1)}


@pytest.mark.parametrize("text", ["東京タワーは日本の塔である。", "ภาษาไทยเป็นภาษาที่มีระดับเสียง", "हिन्दी में लिखा हुआ", "ကမ္ဘာ့ သမိုင်း"])
def test_marks_that_spell_are_kept(text):
    tokenizer = train_wordpiece([text] * 3, 300)
    (ids,) = tokenizer.encode([text])
    assert tokenizer.special.unk not in ids
    assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_texts_with_spaces_are_cut_as_bert_cuts_them():
    assert not train_wordpiece(TEXTS, 300).cuts_characters
    assert train_wordpiece(KOREAN, 400).sha256 == train_wordpiece(KOREAN, 400).sha256
    for texts in (KOREAN, CHINESE):
        tokenizer = train_wordpiece(texts, 400)
        whole = tokenizer.tokenize(texts)
        assert whole.ids.tolist() == [number for ids in tokenizer.encode(texts) for number in ids]
        assert [whole.offsets(n) for n in range(len(texts))] == [tokenizer.encode_offsets(text)[1] for text in texts]
