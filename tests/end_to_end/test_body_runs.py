"""Runs that start from a published body: found at once, with its own tokenizer and rates, of every multilingual family."""

import importlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small import jsonl
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from toy_runs import context_of, rows_of, train

from realm.answering.opening import open_run
from realm.cli import main
from realm.documents.ingest.packing import FREE, PackingCounts, fill_blocks, make_pieces
from realm.documents.spans.spans import TaggedSpan
from realm.errors import ConfigError
from realm.models.bodies.body import has_bf16
from realm.models.model import RealmModel, part_sizes
from realm.recipe import build_recipe, dump_recipe, load_recipe
from realm.runs.checks import meta_model
from realm.runs.exchange import export_run
from realm.text.tokenizer import TextTokenizer, train_wordpiece
from realm.training.starting import new_model

PLACES = ("Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Sofia", "Dakar", "Minsk", "Tunis", "Delhi", "Seoul")
TEXTS = [
    f"{place} has {n + 3} bridges. The river of {place} is called Branta {n}. Every bridge of {place} is old."
    for n, place in enumerate(PLACES)
]
FEW_STEPS = {"warm": {"steps": 2, "batch": 4}, "ict": {"steps": 2, "batch": 4}}


@pytest.fixture(scope="module")
def body(tmp_path_factory, make_body):
    return make_body(tmp_path_factory.mktemp("body"), TEXTS)


@pytest.fixture
def documents(tmp_path):
    return jsonl(tmp_path / "documents.jsonl", [{"id": p, "title": p, "text": t} for p, t in zip(PLACES, TEXTS, strict=True)])


def questions(path):
    asked = [{"id": p, "question": f"What is the river of {p} called?", "answers": [f"Branta {n}"]} for n, p in enumerate(PLACES)]
    return str(jsonl(path, [row | {"positive_ids": [row["id"]]} for row in asked]))


def recipe_of(body, documents, **sections):
    values = {"model": {"body": str(body)}, "corpus": {"sources": [str(documents)]}, "run": {"threads": 1, "device": "cpu"}}
    return build_recipe({**values, **sections})


def indexed(body, documents, run):
    """A run of documents that the body's embedder finds as it is."""
    train(recipe_of(body, documents), run, ("corpus", "pretrain"))
    return open_run(run)


@pytest.fixture
def float32(monkeypatch):
    """A processor that does not multiply bfloat16."""
    monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device: False)


@pytest.mark.usefixtures("float32")
def test_documents_are_searched_at_once_by_the_body_as_it_is(body, documents, tmp_path):
    """Vectors of the index are the published embedder's, and the words are its tokenizer's."""
    run = tmp_path / "run"
    opened = indexed(body, documents, run)
    assert opened.inputs.store.tokenizer.same_wordpieces(TextTokenizer.load(body))
    published, rows = RealmModel.from_pretrained(body).embedder, list(range(len(PLACES)))
    with torch.inference_mode():
        vectors = published(opened.inputs.blocks(rows))
    assert np.allclose(opened.generation.snapshot.vectors, vectors.numpy(), atol=1e-6)
    assert opened.search(TEXTS[3].split(".")[1], 3)[0].score <= 20.0 + 1e-4  # a cosine times the learned scale
    assert main(["index", "search", str(run), "old bridges", "--k", "2", "--json"]) == 0


def test_an_export_is_the_published_embedder_again(body, documents, tmp_path):
    """A sentence-transformers directory in, the same out: modules, pooling, tokenizer and every bit of the body's weights."""
    run, out = tmp_path / "run", tmp_path / "out"
    indexed(body, documents, run)
    assert main(["export", str(run), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"embedder"}
    exported = out / "embedder"
    kinds = [[(module["path"], module["type"]) for module in json.loads((at / "modules.json").read_text())] for at in (body, exported)]
    assert kinds[0] == kinds[1]
    pooling = json.loads((exported / "1_Pooling" / "config.json").read_text())
    assert pooling == {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    before, after = (load_file(at / "model.safetensors") for at in (body, exported))
    assert {name for name in before if not name.startswith("pooler.")} == set(after)
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert str(body) not in (exported / "config.json").read_text()  # nothing of this machine is published
    assert TextTokenizer.load(exported).same_wordpieces(TextTokenizer.load(body))
    inputs = open_run(run).inputs
    with torch.inference_mode():
        vectors = [RealmModel.from_pretrained(at).embedder(inputs.blocks([0, 1])) for at in (body, exported)]
    assert torch.equal(*vectors)


def test_sentence_transformers_loads_an_export(body, documents, tmp_path):
    """Its vectors are those of the index, of what the card says to encode."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    opened = indexed(body, documents, tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    model = library.SentenceTransformer(str(tmp_path / "out" / "embedder"), device="cpu")
    blocks = map(opened.inputs.store.block, range(len(PLACES)))
    found = model.encode([f"{block.title} {model.tokenizer.sep_token} {block.text}" for block in blocks])
    assert np.allclose(found, opened.generation.snapshot.vectors, atol=0.02)


def test_a_run_without_pre_training_learns_questions(body, documents, tmp_path):
    """No step of pre-training: fine-tuning starts from the body, its scale and null offset included, and answers."""
    asked = questions(tmp_path / "qa.jsonl")
    done = train(recipe_of(body, documents, finetune={"train": asked, "steps": 3, "batch": 4, "warmup": 0}), tmp_path / "run")
    assert any("from_ict is false" in reason for reason in done["skipped"])
    opened = open_run(tmp_path / "run")
    tuned = opened.networks.finetuned
    assert tuned is not None and tuned.embedder.log_scale is not None and tuned.reader.spec.span_hidden == 256
    words = [network.body.model.get_input_embeddings().weight for network in (tuned.embedder, tuned.reader)]
    before = RealmModel.from_pretrained(body).embedder.body.model.get_input_embeddings().weight
    assert all(torch.equal(table, before) for table in words)  # the recipe leaves them as they are
    assert not torch.equal(tuned.embedder.log_scale, torch.tensor(math.log(20.0)))
    assert opened.answerer.answer(["What is the river of Oslo called?"])[0].evidence
    assert set(export_run(tmp_path / "run", tmp_path / "out")["forms"]) == {"embedder", "questions"}
    exported, tensors = tuned.embedder.body.model.state_dict(), load_file(tmp_path / "out" / "questions" / "model.safetensors")
    assert set(exported) == set(tensors) and all(torch.equal(tensors[name], tensor) for name, tensor in exported.items())


def taught(body, documents, out, **model):
    asked = questions(out.parent / "qa.jsonl")
    steps = {"steps": 3, "batch": 4, "warmup": 0, "presence": 1.0, "publish": "last", "retriever_rate": 0.0}
    train(recipe_of(body, documents, finetune={"train": asked, "dev": asked, **steps}, **model), out)
    return out


def released(name, monkeypatch, *arguments):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "released")
    script = importlib.import_module(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py", *map(str, arguments)])
    return script


def test_fine_tuned_runs_are_shipped_as_what_they_changed(body, documents, tmp_path, monkeypatch):
    """released/ship.py: the reader and the published embedder for both sides in 8 bits; twice the same bytes; a start for other runs."""
    first = taught(body, documents, tmp_path / "first")
    goes_on = {"pretrain": {"steps": 0, "from_ict": False, "from_warm": False}}
    second = taught(first / "stages" / "finetune", documents, tmp_path / "second", **goes_on)
    facts = {"read": {"qa.jsonl": {"sha256": "0" * 64, "licence": "CC0", "taken": 12}}, "words_in_a_row": 8, "left_out_of": ["x"]}
    (tmp_path / "data.json").write_text(json.dumps(facts))
    out = tmp_path / "shipped"
    ship = released("ship", monkeypatch, first, second, "--data", tmp_path, "--out", out)
    ship.main()
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "data.json").write_bytes(files["data.json"])
    shutil.rmtree(out)
    ship.main()
    assert files == {path.name: path.read_bytes() for path in out.iterdir()}, "bit for bit"
    assert {"README.md", "centred.safetensors", "config.json", "data.json", "model.safetensors", "tokenizer.json"} <= set(files)
    card = files["README.md"].decode()
    assert "| qa.jsonl | CC0 | 12 |" in card and "paragraphs: 12 of 12 in 3 steps, then 12 of 12 in 3 steps" in card
    released("ship", monkeypatch, second, "--data", tmp_path / "before", "--out", tmp_path / "later").main()
    assert card.count("12 in 3 steps") + 1 == (tmp_path / "later" / "README.md").read_text("utf-8").count("12 in 3 steps")
    assert not any("reader.body.model.embeddings.word" in name for name in load_file(out / "model.safetensors"))
    tuned, shipped = open_run(second), RealmModel.from_pretrained(out)
    assert shipped.reader.spec.pointer and shipped.reader.spec.taught
    fitted = tuned.networks.reader.confidence
    assert fitted is not None and (shipped.reader.spec.slope, shipped.reader.spec.bias) == (fitted.slope, fitted.bias)
    train(recipe_of(out, documents, **goes_on), tmp_path / "other", ("corpus", "pretrain"))
    opened = open_run(tmp_path / "other")
    answers = [run.answerer.answer([f"What is the river of {PLACES[0]} called?"])[0] for run in (tuned, opened)]
    assert answers[0].p == pytest.approx(answers[1].p, rel=0.1) and answers[1].confidence is not None and not opened.without_questions


def test_rates_suit_published_weights_unless_the_recipe_says_otherwise(tmp_path):
    nothing, minilm = build_recipe({}), build_recipe({"model": {"body": "minilm"}})
    assert minilm.finetune.lr == 2e-4 and minilm.finetune.lr * minilm.finetune.retriever_rate <= 2.1e-5
    assert minilm.finetune.rename_rate == 0.0 and minilm.model.freeze_words and not minilm.pretrain.steps
    assert nothing.finetune.lr == 5e-4 and nothing.finetune.rename_rate == 0.5 and not nothing.model.freeze_words
    assert build_recipe({"model": {"body": "some/body"}}).finetune.lr == 5e-5
    (tmp_path / "mine.toml").write_text('[model]\nbody = "minilm"\n[finetune]\nlr = 1e-4\n')
    assert load_recipe(tmp_path / "mine.toml").finetune.lr == 1e-4


def test_a_stage_of_another_run_is_given_what_suited_that_runs_body(tmp_path):
    """As often as one run starts from another; what began from nothing, or says nothing of itself, is taken as it was."""
    bodies = {"first": "minilm", "second": tmp_path / "first", "nothing": "", "silent": None, "circle": tmp_path / "circle"}
    for name, body in bodies.items():
        stage = tmp_path / name / "stages" / "finetune"
        stage.mkdir(parents=True)
        (stage / "config.json").write_text('{"library": "realm"}')
        if body is not None:
            named = body / "stages" / "finetune" if isinstance(body, Path) else body
            (tmp_path / name / "config.toml").write_text(dump_recipe(build_recipe({"model": {"body": str(named)}})))
            (tmp_path / name / "run.json").write_text("{}")

    def rates(name):
        recipe = build_recipe({"model": {"body": str(tmp_path / name / "stages" / "finetune")}})
        return recipe.finetune.lr, recipe.corpus.block_length, recipe.model.projection, recipe.pretrain.from_ict

    assert rates("first") == rates("second") == (2e-4, 160, 0, False)
    nothing = build_recipe({})
    for name in ("nothing", "silent", "circle"):
        assert rates(name) == (nothing.finetune.lr, nothing.corpus.block_length, nothing.model.projection, True)


def test_a_pointer_over_a_body_needs_two_lines():
    """The reader learns, then the queries' side; what the recipe says wins, and other sentences stand in no block."""
    two = {"model": {"body": "minilm"}, "pretrain": {"fill": "pointer", "steps": 1000}}
    found = build_recipe(two).pretrain
    assert (found.masking, found.exclude, found.own_block, found.retriever_rate, found.lr) == ("recurring", "reading", 0.6, 0.1, 2e-4)
    assert (found.reader_first, found.reader_stays(700), found.queries_alone) == (700, True, True)
    assert not build_recipe({**two, "pretrain": {**two["pretrain"], "steps": 400}}).pretrain.queries_alone, "too few for a second phase"
    assert not found.from_warm and found.refresh == "inline" and found.publish == "better"
    released = [build_recipe({**two, "model": {"body": f"realm-{name}-en"}}).pretrain for name in ("minilm", "mpnet")]
    assert {(own.reader_first, own.queries_alone, own.masking) for own in released} == {(1, True, "recurring")}, "they read already"
    assert build_recipe({"model": {"body": "realm-minilm-en"}}).pretrain.reader_first == 0
    other = build_recipe({**two, "pretrain": {**two["pretrain"], "masking": "salient", "sentences": ["news.jsonl"]}}).pretrain
    assert (other.masking, other.own_block, other.questions) == ("salient", 0.0, 0.5)
    assert build_recipe({"pretrain": {"fill": "pointer"}}).pretrain.own_block == 0.0, "from nothing nobody reads yet"


def test_the_body_is_counted_and_not_the_preset(body, documents, tmp_path):
    """Parameters of the networks that a run makes; the width of its index; a body that is not here has the sizes of the table."""
    recipe = recipe_of(body, documents)
    train(recipe, tmp_path / "run", ("corpus",))
    made, expected = part_sizes(new_model(context_of(tmp_path / "run", recipe))), meta_model(recipe)
    assert {part: part_sizes(expected)[part] for part in made} == made
    assert expected.embedder.spec.projection == 32
    granite = meta_model(build_recipe({"model": {"body": "granite"}}), 300).encoder.body.spec.config
    assert (granite["num_hidden_layers"], granite["hidden_size"]) == (6, 384)


def test_bfloat16_moves_no_vector_far(body, documents, tmp_path, monkeypatch):
    """On a processor that multiplies it the index of a body is made in bfloat16: cosines with float32's stay above .999."""
    found = []
    for name, half in (("exact", False), ("half", has_bf16("cpu"))):
        monkeypatch.setattr("realm.models.bodies.body.has_bf16", lambda device, half=half: half)
        found.append(np.asarray(indexed(body, documents, tmp_path / name).generation.snapshot.vectors))
    exact, half = found
    assert (exact * half).sum(1).min() > 0.999 and np.array_equal(exact, half) is not has_bf16("cpu")


def test_pre_training_starts_the_null_document_at_its_share(body, documents, tmp_path):
    steps = {"steps": 2, "batch": 4, "candidates": 4, "force": True, "refresh": "inline", "held_out": 0}
    train(recipe_of(body, documents, pretrain=steps, **FEW_STEPS), tmp_path / "run")
    shares = [row["p_null"] for row in rows_of(tmp_path / "run") if "p_null" in row]
    assert shares and all(0.05 < share < 0.6 for share in shares)
    opened = open_run(tmp_path / "run")
    offset = opened.networks.pretrained.embedder.null_offset
    assert offset is not None and float(offset.detach()) != 0.0
    assert np.allclose(np.linalg.norm(opened.generation.snapshot.vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(("sections", "said"), [
    ({"corpus": {"tokenizer": "{other}"}}, "vocabulary is not the corpus's.*leave corpus.tokenizer empty"),
    ({"corpus": {"block_length": 500}}, "reads 512 wordpieces, and a question with a block has up to 563"),
    ({"model": {"projection": 8}}, r"'model\.projection' is 8, and the body's embeddings have 32"),
])  # fmt: skip
def test_what_does_not_fit_a_body_is_refused(sections, said, body, documents, tmp_path):
    """A corpus of another vocabulary would give every word a foreign embedding."""
    (tmp_path / "other").mkdir()
    train_wordpiece(["quite other words in here", *PLACES], 250).save(tmp_path / "other")
    values = {"corpus": {"sources": [str(documents)]}, "model": {"body": str(body)}}
    for section, own in sections.items():
        values[section] |= {key: str(tmp_path / "other") if value == "{other}" else value for key, value in own.items()}
    with pytest.raises(ConfigError, match=said):
        train(recipe_of(body, documents, **values), tmp_path / "run", ("corpus", "pretrain"))


LANGUAGES = {
    "zh": "青川市位于玉河边。青川市在1901年建立。玉河流过青川市，青川市的人口是4200人。",
    "ko": "백하시는 장강 옆에 있다. 백하시는 1912년에 세워졌다. 장강은 백하시를 지나며 인구는 5300명이다.",
    "ar": "القاهرة هي عاصمة مصر وأكبر مدنها. تقع المدينة على نهر النيل.",
    "en": "Quincy lies on the Amber River. Quincy was founded in 1923, and 6400 people live there.",
}
ASKED = [("青川市在哪一年建立？", "1901年"), ("백하시는 언제 세워졌는가?", "1912년"), ("When was Quincy founded?", "1923")]
NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 514}


def wordpieces():
    """Multilingual BERT's kind: cased, a Han character a word, Hangul by words."""
    return train_wordpiece(LANGUAGES.values(), 300, lowercase=False)


def sentence_pieces():
    """XLM-R's and multilingual E5's kind: runs of characters, spaces written as ▁."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizers.NFKC(), pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=NAMES, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(LANGUAGES.values(), trainer)
    return TextTokenizer(backend)


def byte_pieces():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=NAMES, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(LANGUAGES.values(), trainer)
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
    docs = jsonl(tmp_path / "docs.jsonl", [{"id": name, "title": name, "text": text} for name, text in LANGUAGES.items()])
    qa = str(jsonl(tmp_path / "qa.jsonl", [{"id": answer, "question": asked, "answers": [answer]} for asked, answer in ASKED]))
    recipe = build_recipe( {
        "run": {"threads": 1, "device": "cpu", "checkpoint_every": 0},
        "corpus": {"sources": [str(docs)], "block_length": 64},
        "model": {"body": str(body), "pooling": "mean", "segments": False, "query_length": 32, "max_span": 12},
        "pretrain": {"refresh": "inline"},
        "finetune": {"train": qa, "steps": 2, "batch": 3, "warmup": 0, "read": 2},
        "eval": {"qa": qa, "k": [1, 2]},
    })  # fmt: skip
    train(recipe, tmp_path / "run")
    found = json.loads((tmp_path / "run" / "results" / "finetune.json").read_text("utf-8"))
    assert found["n"] == 3 and found["recall"]["2"] == 1.0
    opened = open_run(tmp_path / "run")
    assert opened.inputs.store.tokenizer.same_wordpieces(tokenizer)
    for answer in opened.answerer.answer([question for question, _ in ASKED], k=2):
        assert answer.answer and answer.evidence
        for evidence in answer.evidence:
            begin = evidence.doc_start + evidence.start
            assert evidence.answer and LANGUAGES[evidence.doc_id][begin : begin + len(evidence.answer)] == evidence.answer


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
