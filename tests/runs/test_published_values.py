"""Values published with the models; those of the checkpoints where $REALM_CHECKPOINTS has google's directories."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ours import Case
from safetensors.torch import load_file, save_file
from small import corpus_of
from small_corpus import bert_tokenizer, best_span

from realm import Realm
from realm.models import losses
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.published.names import import_tensors, plan_import, published_kind, read_published_config
from realm.models.types import Sequence
from realm.runs.importing import import_published
from realm.search.blocks import open_inputs

SIX, TWELVE = list(range(6)), list(range(6, 12))
RECORDS = ("first", "second", "third", "fourth", "fifth")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "test", "question", "this", "is", "the", *RECORDS, "record"]


def read_published(directory, **changes):
    """A model in a published directory; ``changes`` are configuration values that a published test overrides."""
    file, weights = directory / "model.safetensors", directory / "pytorch_model.bin"
    tensors = load_file(file) if file.is_file() else torch.load(weights, weights_only=True)  # noqa: TID251 (tensors alone; a test)
    kind = published_kind(tensors)
    spec = read_published_config({**json.loads((directory / "config.json").read_text("utf-8")), **changes}, kind)
    plan = plan_import(kind, spec, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    model = RealmModel(spec)
    model.load_state_dict(import_tensors(plan, tensors.__getitem__))
    return model.eval()


@pytest.fixture
def checkpoint():
    """checkpoint("realm-...") -> its directory; skips without it."""

    def find(name):
        root = os.environ.get("REALM_CHECKPOINTS")
        if not root:
            pytest.skip("set REALM_CHECKPOINTS to a directory with google's realm-* model directories")
        if not (Path(root) / name / "config.json").is_file():
            pytest.skip(f"$REALM_CHECKPOINTS has no {name}")
        return Path(root) / name

    return find


def plain(*rows):
    return [Sequence(row, [0] * len(row)) for row in rows]


def close(found, expected):
    torch.testing.assert_close(found.detach(), torch.tensor(expected), rtol=0, atol=1e-4)


def test_the_embedder(checkpoint):
    found = read_published(checkpoint("realm-cc-news-pretrained-embedder")).embedder(plain(SIX))
    assert found.shape == (1, 128)
    close(found[:, :3], [[-0.0714, -0.0837, -0.1314]])


def test_the_encoder(checkpoint):
    encoder = read_published(checkpoint("realm-cc-news-pretrained-encoder")).encoder
    logits = encoder.logits(encoder.mask_states(plain(SIX, TWELVE), torch.arange(6).expand(2, -1)))
    assert logits.shape == (2, 6, 30522)
    close(logits[1, :2, :2], [[-11.0888, -11.2544], [-10.2170, -10.3874]])


def test_the_scorer(checkpoint):
    model = read_published(checkpoint("realm-cc-news-pretrained-scorer"))
    close(losses.relevance_scores(model.embedder(plain(SIX)), model.documents(plain(SIX, TWELVE)).unsqueeze(0)), [[0.7410, 0.7170]])


def test_the_reader(checkpoint):
    reader = read_published(checkpoint("realm-orqa-nq-reader"), max_span_width=3).reader
    rows = [Sequence(row, [0, 0, 1, 1, 1]) for row in (list(range(5)), list(range(5, 10)))]
    scores = reader(rows, [2, 2])
    logits = scores.logits + torch.tensor([0.3, 0.7]).view(-1, 1, 1)
    assert best_span(replace(scores, logits=logits)) == (1, 3 - 2, 0)


@pytest.mark.slow  # 13 million blocks are tokenised and indexed first
@pytest.mark.timeout(0)
def test_the_open_qa_model(checkpoint, tmp_path):
    import_published([checkpoint("realm-orqa-nq-openqa")], tmp_path / "run")
    assert Realm.open(tmp_path / "run").ask("Who is the pioneer in modern computer science?").answer.lower() == "alan mathison turing"


@pytest.mark.parametrize("kind", ["embedder", "encoder", "scorer", "reader", "openqa"])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_published_directory_is_read(kind, file, tmp_path):
    """The tests above do not run where the checkpoints are not: their way of reading does."""
    case = Case(Path(__file__).parents[1] / "models" / "golden" / f"{kind}.safetensors")
    weights = {name: tensor.clone() for name, tensor in case.below("weights/").items()}
    (tmp_path / "config.json").write_text(json.dumps(case.config), "utf-8")
    save = torch.save if file.endswith("bin") else save_file  # noqa: TID251 (what the published files are)
    save(weights, tmp_path / file)
    model = read_published(tmp_path)
    name = next(name for name in weights if name.endswith("encoder.layer.1.output.dense.bias") and "query" not in name)
    part = getattr(model, {"scorer": "document_embedder", "openqa": "embedder"}.get(kind, kind))
    assert torch.equal(part.body.model.encoder.layer[1].output.dense.bias.detach(), weights[name])


def test_the_original_op_s_inputs():
    """ORQA's reader_inputs op: question [0, 1], blocks [2, 3, 4] and [5, 6]."""
    features = Featurizer(cls=10, sep=11, mask=12, pad=0)
    joint = [features.joint([0, 1], body) for body in ([2, 3, 4], [5, 6])]
    assert [row.ids for row in joint] == [[10, 0, 1, 11, 2, 3, 4, 11], [10, 0, 1, 11, 5, 6, 11]]
    body = [range(features.body_start([0, 1]), len(row) - 1) for row in joint]
    assert [list(places) for places in body] == [[4, 5, 6], [4, 5]]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    root = tmp_path_factory.mktemp("records")
    texts = [f"This is the {word} record" for word in RECORDS] + ["This is a longer longer longer record"]
    documents = [(str(i), "", text) for i, text in enumerate(texts)]
    return open_inputs(corpus_of(root, documents, tokenizer=bert_tokenizer(WORDS), block_length=64), 32)


def test_the_retriever_s_inputs(records):
    (question,) = records.store.tokenizer.encode(["Test question"])
    rows = [records.joint(question, row) for row in (0, 3)]
    words = [[records.store.tokenizer.token(i) for i in row.ids] for row in rows]
    start = ["[CLS]", "test", "question", "[SEP]", "this", "is", "the"]
    assert words == [[*start, word, "record", "[SEP]"] for word in ("first", "fourth")]
