"""Chinese and Korean answers from a body of each multilingual family: wordpieces lead back to the characters of the document."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from realm.answering.opening import open_run
from realm.documents.ingest.packing import FREE, PackingCounts, fill_blocks, make_pieces
from realm.documents.spans.spans import TaggedSpan
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.text.tokenizer import TextTokenizer, train_wordpiece

TEXTS = {
    "zh": "青川市位于玉河边。青川市在1901年建立。玉河流过青川市，青川市的人口是4200人。",
    "ko": "백하시는 장강 옆에 있다. 백하시는 1912년에 세워졌다. 장강은 백하시를 지나며 인구는 5300명이다.",
    "ar": "القاهرة هي عاصمة مصر وأكبر مدنها. تقع المدينة على نهر النيل.",
    "en": "Quincy lies on the Amber River. Quincy was founded in 1923, and 6400 people live there.",
}
QUESTIONS = [("青川市在哪一年建立？", "1901年"), ("백하시는 언제 세워졌는가?", "1912년"), ("When was Quincy founded?", "1923")]
NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 514}


def wordpieces():
    """Multilingual BERT's kind: cased, a Han character a word, Hangul by words."""
    return train_wordpiece(TEXTS.values(), 300, lowercase=False)


def sentence_pieces():
    """XLM-R's and multilingual E5's kind: runs of characters, spaces written as ▁."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizers.NFKC(), pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=NAMES, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS.values(), trainer)
    return TextTokenizer(backend)


def byte_pieces():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=NAMES, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS.values(), trainer)
    return TextTokenizer(backend)


FAMILIES = {
    "mbert": (wordpieces, {"model_type": "bert"}),
    "e5": (sentence_pieces, {"model_type": "bert"}),
    "xlm-roberta": (sentence_pieces, {"model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 1}),
    "mpnet": (sentence_pieces, {"model_type": "mpnet", "pad_token_id": 1}),
    "modernbert": (
        byte_pieces,
        {"model_type": "modernbert", "pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0, "eos_token_id": 2},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_from_a_body_of_each_family(family, tmp_path):
    from transformers import AutoConfig, AutoModel

    make, values = FAMILIES[family]
    tokenizer, body = make(), tmp_path / "body"
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model(**{**values, **SIZES, "vocab_size": tokenizer.vocab_size})).save_pretrained(body)
    tokenizer.save(body)
    rows = [{"id": name, "title": name, "text": text} for name, text in TEXTS.items()]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = [{"id": answer, "question": question, "answers": [answer]} for question, answer in QUESTIONS]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    recipe = build_recipe( {
        "run": {"threads": 1, "device": "cpu", "checkpoint_every": 0},
        "corpus": {"sources": [str(tmp_path / "docs.jsonl")], "block_length": 64},
        "model": {"body": str(body), "pooling": "mean", "segments": False, "query_length": 32, "max_span": 12},
        "pretrain": {"refresh": "inline"},
        "finetune": {"train": str(tmp_path / "qa.jsonl"), "steps": 2, "batch": 3, "warmup": 0, "read": 2},
        "eval": {"qa": str(tmp_path / "qa.jsonl"), "k": [1, 2]},
    })  # fmt: skip
    run_recipe(recipe, tmp_path / "run", stages=None, progress=Progress(quiet=True))
    found = json.loads((tmp_path / "run" / "results" / "finetune.json").read_text("utf-8"))
    assert found["n"] == 3 and found["recall"]["2"] == 1.0
    opened = open_run(tmp_path / "run")
    assert opened.inputs.store.tokenizer.same_wordpieces(tokenizer)
    for answer in opened.answerer.answer([question for question, _ in QUESTIONS], k=2):
        assert answer.answer and answer.evidence
        for evidence in answer.evidence:
            begin = evidence.doc_start + evidence.start
            assert evidence.answer and TEXTS[evidence.doc_id][begin : begin + len(evidence.answer)] == evidence.answer


@pytest.mark.parametrize("make", [byte_pieces, sentence_pieces])
def test_other_kinds_of_tokenizers_pack_right(make):
    """Every character in exactly one piece, none over the limit, spans on exactly the tokens of their text."""
    tokenizer, text = make(), "The 🏦 of Quincy met Ada Lovelace in 青川. " + "백하시는 " * 30 + "London."
    ranges = [(0, text.index("백")), (text.index("백"), len(text))]
    ranges = [(start, start + len(text[start:end].rstrip())) for start, end in ranges]
    spans = [[TaggedSpan(text.index(word), text.index(word) + len(word), "name") for word in ("🏦", "Ada Lovelace", "青川")], []]
    counts, tokens = PackingCounts(), tokenizer.tokenize([text[start:end] for start, end in ranges])
    room = int(tokens.starts[1])
    pieces = make_pieces(text, ranges, tokens, 0, spans, room, counts)
    assert counts.sentences_cut == 1
    blocks = fill_blocks(pieces.lengths, [room] * len(pieces), [FREE] * len(pieces))
    assert all(sum(pieces.lengths[first:last]) <= room for first, last in blocks)
    assert "".join("".join(text[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)).split()) == "".join(text.split())
    for span, word in zip(pieces.spans, ("🏦", "Ada Lovelace", "青川"), strict=True):
        covered = tokenizer.decode(tokens.ids[span.token_start : span.token_end].tolist())
        assert text[span.char_start : span.char_end] == word and (covered.strip() == word or "<unk>" in covered)
