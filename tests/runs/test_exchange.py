"""Every published form becomes a run: all tensors accounted for, the same numbers, answers in the document's own spelling."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small import as_sentence_model, features, jsonl

from realm import Realm, RealmModel
from realm.answering.opening import open_run
from realm.cli import main
from realm.errors import DataError, RunError
from realm.models.model import state_sha256
from realm.models.published.models import load_published
from realm.runs.exchange import import_published
from realm.text.tokenizer import read_vocabulary, train_wordpiece

from .conftest import CONFIG, KINDS, RECORDS, VOCABULARY

EXPECTED = {
    "embedder": {"embedder"}, "scorer": {"embedder", "document_embedder"}, "encoder": {"encoder"}, "reader": {"reader"},
    "openqa": {"embedder", "reader"}, "bert": {"embedder", "encoder"},
}  # fmt: skip


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_tensor_is_accounted_for(publish, tmp_path, kind, file):
    directory = publish(kind, file=file)
    result = import_published([directory], tmp_path / "run")
    assert set(result["parts"]) == EXPECTED[kind]
    (model,) = result["models"]
    assert model["kind"] == kind and model["imported"] + len(model["unused"]) == len(KINDS[kind])
    assert all(reason for reason in model["unused"].values()) and not set(model["unused"]) - set(KINDS[kind])
    assert (model["fresh"] == []) == (kind != "bert")
    assert json.loads((tmp_path / "run" / "imported.json").read_text()) == result
    stage = "finetune" if "reader" in EXPECTED[kind] else "pretrain"
    saved = RealmModel.from_pretrained(tmp_path / "run" / "stages" / stage)
    assert state_sha256(saved) == state_sha256(
        RealmModel.from_published(load_published(directory)).with_parts(**({"encoder": None} if stage == "finetune" else {}))
    )


def test_both_formats_give_the_same_bits(publish):
    one, other = publish("openqa"), publish("openqa", seed=1, file="pytorch_model.bin")
    torch.save(load_file(one / "model.safetensors"), other / "pytorch_model.bin")  # noqa: TID251
    assert state_sha256(RealmModel.from_published(load_published(one))) == state_sha256(RealmModel.from_published(load_published(other)))


def test_shards(publish):
    directory = publish("reader")
    whole = RealmModel.from_published(load_published(directory))
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    places = {name: f"model-{1 + (number % 2):05d}-of-00002.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, directory / file)
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert state_sha256(RealmModel.from_published(load_published(directory))) == state_sha256(whole)


def documents_of(path, texts):
    return jsonl(path, [{"id": f"d{number}", "title": "", "text": text} for number, text in enumerate(texts)])


def test_an_open_qa_model_answers(publish, tmp_path):
    """The index is the documents' own embedder's; answers stand in the text at their offsets, in its spelling."""
    question, documents = publish("openqa"), publish("embedder", seed=1)
    texts = list(dict.fromkeys(filter(None, RECORDS)))
    source = documents_of(tmp_path / "docs.jsonl", texts)
    result = import_published([question, documents], tmp_path / "run", documents=[source])
    assert result["blocks"] > len(texts) and not result["notes"]
    opened = open_run(tmp_path / "run")
    assert opened.generation.snapshot.manifest.document_embedder_sha256 == state_sha256(
        RealmModel.from_published(load_published(documents)).documents
    )
    answer = Realm.open(tmp_path / "run").ask("Who is Alan Turing?", k=result["blocks"])
    nearest = np.argsort(-_scores(opened, "Who is Alan Turing?"), kind="stable").tolist()
    assert sorted(answer.evidence, key=lambda e: -e.p_z) == sorted(answer.evidence, key=lambda e: nearest.index(e.block_id))
    for evidence in answer.evidence:
        assert any(evidence.text in text for text in texts) and evidence.text[evidence.start : evidence.end] == evidence.answer
    assert answer.answer and any(answer.answer in text for text in texts)


def _scores(opened, question):
    ids = opened.inputs.store.tokenizer.encode([question])[0]
    return opened.generation.snapshot.vectors @ opened.tuned.embedder.embed_questions([opened.inputs.featurizer.query(ids)])[0]


def test_without_the_embedder_that_made_the_index(publish, tmp_path):
    source = documents_of(tmp_path / "docs.jsonl", RECORDS[:3])
    assert "questions' embedder alone" in import_published([publish("openqa")], tmp_path / "run", documents=[source])["notes"][0]
    assert len(Realm.open(tmp_path / "run").search("city", k=3)) == 3
    lone = import_published([publish("openqa", seed=2)], tmp_path / "lone")
    assert lone["blocks"] == 0 and lone["models"][0]["unused"]["block_emb"] == "an index is made of your own documents"


def test_other_documents(publish, tmp_path):
    """Embedder and encoder of pre-training over the user's documents: search and explain work, fine-tuning can start."""
    documents, run = documents_of(tmp_path / "docs.jsonl", RECORDS[:3]), tmp_path / "run"
    result = import_published([publish("embedder"), publish("encoder", seed=1)], run, documents=[documents])
    assert result["blocks"] == 4 and set(result["parts"]) == {"embedder", "encoder"}
    realm = Realm.open(run)
    assert {hit.doc_id for hit in realm.search("pound", k=4)} == {"d0", "d1", "d2"}
    assert 0 < realm.explain("Alan [MASK] was a pioneer.", ["Turing"], k=3).p_y < 1
    with pytest.raises(RunError, match="has not been fine-tuned"):
        realm.ask("Who?", k=1)
    questions = tmp_path / "qa.jsonl"
    questions.write_text(json.dumps({"id": "q", "question": "Who is Alan Turing?", "answers": ["Alan Mathison Turing"]}) + "\n")
    config = (run / "config.toml").read_text().replace('train = ""', f'train = "{questions}"').replace("steps = 400", "steps = 2")
    config = config.replace("candidates = 8", "candidates = 3").replace("read = 5", "read = 3")
    (run / "config.toml").write_text(config.replace('device = "auto"', 'device = "cpu"'))
    assert main(["run", str(run), "--stages", "finetune"]) == 0
    assert Realm.open(run).ask("Who is Alan Turing?", k=2).evidence


def test_training_goes_on_from_an_import(publish, tmp_path, write_tiny):
    """Pre-training on other documents starts from the imported embedder and encoder, heads included."""
    imported = tmp_path / "imported"
    import_published([publish("embedder"), publish("encoder", seed=1)], imported)
    start, recipe = imported / "stages" / "pretrain", write_tiny(tmp_path / "tiny")
    texts = [f"The city is in {a}. The currency of the city is the {b} {a}." for a in "ABCDEF" for b in ("Pound", "Turing")]
    documents_of(recipe.parent / "docs.jsonl", texts)
    arguments = ["run", str(recipe), "--out", str(tmp_path / "run"), "--stages", "corpus,warm,ict", "--set", "warm.steps=0"]
    settings = [f"model.body={start}", f"corpus.tokenizer={start}", "corpus.block_length=48", "model.query_length=16", "ict.steps=0"]
    assert main([*arguments, *(part for setting in settings for part in ("--set", setting))]) == 0
    begun, before = RealmModel.from_pretrained(tmp_path / "run" / "stages" / "ict"), RealmModel.from_pretrained(start)
    assert state_sha256(begun.embedder) == state_sha256(before.embedder)
    assert state_sha256(RealmModel.from_pretrained(tmp_path / "run" / "stages" / "warm").encoder) == state_sha256(before.encoder)


@pytest.mark.parametrize(
    ("kind", "tokenizer", "problem"), [("embedder", True, "needs an embedder and an encoder"), ("bert", False, "wordpieces")]
)
def test_no_start_for_training(publish, tmp_path, write_tiny, capsys, kind, tokenizer, problem):
    import_published([publish(kind)], tmp_path / "imported")
    start = tmp_path / "imported" / "stages" / "pretrain"
    arguments = ["run", str(write_tiny(tmp_path / "tiny")), "--out", str(tmp_path / "run"), "--set", f"model.body={start}"]
    if not tokenizer:  # left empty, it would be the body's
        (tmp_path / "words").mkdir()
        train_wordpiece(["quite other words"], 200).save(tmp_path / "words")
    assert main([*arguments, "--set", f"corpus.tokenizer={start if tokenizer else tmp_path / 'words'}"]) == 2
    assert problem in capsys.readouterr().err


def test_what_the_commands_print(publish, tmp_path, capsys):
    assert (
        main(["import", str(publish("bert", hidden_act="gelu_new")), str(publish("reader", seed=1)), "--out", str(tmp_path / "run")]) == 0
    )
    captured = capsys.readouterr()
    assert "unused, nothing here predicts the next sentence: cls.seq_relationship" in captured.out
    assert "start at random: embedder.dense.weight" in captured.out and "nothing to search in it yet" in captured.err


BODY = {key: value for key, value in CONFIG.items() if not key.startswith(("retriever", "span", "max_span", "model_type"))}


@pytest.fixture
def sentence_model(tmp_path):
    """Writes a sentence-transformers directory of any family in small."""

    def write(family, pooling="mean_tokens", *more):
        from transformers import AutoConfig, AutoModel

        directory = tmp_path / family
        config = AutoConfig.for_model(family, **{**BODY, "vocab_size": len(VOCABULARY) + 3})
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(directory)
        (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return as_sentence_model(directory, 32, pooling, *more)

    return write


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_a_sentence_embedder(sentence_model, family, pooling):
    """The same vectors as transformers' own model with the pooling written out."""
    from transformers import AutoModel

    directory = sentence_model(family, pooling, "Normalize")
    found = load_published(directory)
    embedder = RealmModel.from_published(found).embedder
    reference = AutoModel.from_pretrained(directory).eval()
    sequences = [features(found).query(one) for one in found.tokenizer.encode(["the pound", "who is alan turing ?"])]
    with torch.inference_mode():
        ours = embedder(sequences)
        for row, sequence in enumerate(sequences):
            states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0]
            vector = states.mean(0) if pooling == "mean_tokens" else states[0]
            assert torch.allclose(ours[row], vector / vector.norm(), atol=1e-5)
    # What the body does not read is named.
    assert set(found.unused) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_other_sentence_models_are_refused(sentence_model):
    directory = sentence_model("bert", "max_tokens")
    with pytest.raises(DataError, match="the pooling pooling_mode_max_tokens is neither mean nor"):
        load_published(directory)
    modules = directory / "modules.json"
    for text, problem in [("{}", "not a list"), ("[]", "the modules none"), ('[{"type": "a.Transformer"}, {"type": "b.Dense"}]', "Dense")]:
        modules.write_text(text)
        with pytest.raises(DataError, match=problem):
            load_published(directory)


def test_a_tokenizer_of_vocab_txt(tmp_path):
    """The same ids and offsets as transformers' BERT tokenizer of the same file."""
    from transformers import BertTokenizerFast

    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    ours = read_vocabulary(tmp_path / "vocab.txt")
    theirs = BertTokenizerFast(str(tmp_path / "vocab.txt")).backend_tokenizer
    for text in [*RECORDS, "The Pound's ŌSAKA — 1912? 東京", "[MASK] is a city"]:
        reference = theirs.encode(text, add_special_tokens=False)
        assert ours.encode_offsets(text) == (reference.ids, reference.offsets)
