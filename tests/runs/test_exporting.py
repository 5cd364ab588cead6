"""Forms beside the Hugging Face directories: sentence-transformers, the hub, ONNX."""

import json

import pytest
import torch

from realm import Realm, RealmModel
from realm.errors import DataError
from realm.models.featurize import Featurizer
from realm.models.published.models import load_published
from realm.runs.importing import import_published
from realm.text.tokenizer import read_vocabulary

from .conftest import CONFIG, RECORDS, VOCABULARY

BODY = {key: value for key, value in CONFIG.items() if not key.startswith(("retriever", "span", "max_span", "model_type"))}


@pytest.fixture
def sentence_model(tmp_path):
    """Writes a sentence-transformers directory of any family in small."""

    def write(family, pooling="pooling_mode_mean_tokens", *more):
        from transformers import AutoConfig, AutoModel

        directory = tmp_path / family
        config = AutoConfig.for_model(family, **{**BODY, "vocab_size": len(VOCABULARY) + 3})
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(directory)
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, pooling: True}))
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *((kind, f"2_{kind}") for kind in more)]
        modules = [{"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(kinds)]
        (directory / "modules.json").write_text(json.dumps(modules))
        (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return directory

    return write


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_a_sentence_embedder(sentence_model, family, pooling):
    """The same vectors as transformers' own model with the pooling written out."""
    from transformers import AutoModel

    directory = sentence_model(family, f"pooling_mode_{pooling}", "Normalize")
    found = load_published(directory)
    embedder = RealmModel.from_published(found).embedder
    reference = AutoModel.from_pretrained(directory).eval()
    ids, special = found.tokenizer.encode(["the pound", "who is alan turing ?"]), found.tokenizer.special
    sequences = [Featurizer(special.cls, special.sep, special.mask, special.pad).query(one) for one in ids]
    with torch.inference_mode():
        ours = embedder(sequences)
        for row, sequence in enumerate(sequences):
            states = reference(input_ids=torch.tensor([sequence.ids])).last_hidden_state[0]
            vector = states.mean(0) if pooling == "mean_tokens" else states[0]
            assert torch.allclose(ours[row], vector / vector.norm(), atol=1e-5)
    # What the body does not read is named.
    assert set(found.unused) == {"pooler.dense.weight", "pooler.dense.bias"}


def test_a_sentence_embedder_searches(sentence_model, tmp_path):
    documents = tmp_path / "docs.jsonl"
    documents.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(RECORDS[:3])))
    import_published([sentence_model("bert")], tmp_path / "run", documents=[documents])
    assert len(Realm.open(tmp_path / "run").search("pound", k=2)) == 2


def test_other_sentence_models_are_refused(sentence_model):
    directory = sentence_model("bert", "pooling_mode_max_tokens")
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
