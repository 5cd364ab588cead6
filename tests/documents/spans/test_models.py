"""Taggers of models that lie outside the corpus: a Hugging Face token classifier, made here."""

import pytest
from small import learned_from

from realm.documents.spans.spans import TaggedSpan, kind_of
from realm.documents.spans.specs import TaggerPlan, load_tagger, write_state
from realm.errors import ConfigError, DataError

LABELS = ["O", "B-PER", "I-PER", "B-DATE", "B-ORG"]
WORDS = {"ada": 1, "lovelace": 2, "1815": 3, "acme": 4, "##corp": 0}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A tiny BERT whose label is decided by the wordpiece alone: the embeddings of ``WORDS`` point to their labels."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

    directory = tmp_path_factory.mktemp("classifier")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "of", ".", *WORDS]
    backend = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(directory)
    config = BertConfig(
        vocab_size=len(names), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=80, id2label=dict(enumerate(LABELS)), label2id={label: number for number, label in enumerate(LABELS)},
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForTokenClassification(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "LayerNorm" not in name:
                weights.zero_()
        for number, name in enumerate(names):
            model.bert.embeddings.word_embeddings.weight[number, WORDS.get(name, 0)] = 1.0
        model.classifier.weight[:, : len(LABELS)] = torch.eye(len(LABELS))
    model.save_pretrained(directory)
    return directory


def test_a_token_classifier_tags_by_its_labels_however_it_is_batched(classifier, tmp_path):
    tagger = learned_from(TaggerPlan(f"hf:{classifier}"), [])
    text = "The Ada Lovelace of 1815. AcmeCorp acme, Ada Ada of"
    spans = [(text[span.start : span.end], span.kind) for span in tagger.tag(text)]
    assert spans == [("Ada Lovelace", "name"), ("1815", "date"), ("AcmeCorp", "name"), ("acme", "name"), ("Ada", "name"), ("Ada", "name")]
    write_state(tmp_path / "tagger.json", tagger.state())
    assert load_tagger(tmp_path / "tagger.json").tag(text) == tagger.tag(text)
    texts = ["", " ", "of", *("of " * number + "Ada Lovelace of the Acme" for number in range(70))]
    texts.append(" ".join(["Ada Lovelace of"] * 100))  # more wordpieces than the model takes: 80 with the two around them
    together = tagger.tag_many(texts)
    assert together == [tagger.tag(text) for text in texts]
    assert together[:3] == [[], [], []]
    assert together[5] == [TaggedSpan(6, 18, "name"), TaggedSpan(26, 30, "name")]
    assert [(span.end - span.start, span.kind) for span in together[-1]] == [(12, "name")] * 26


def test_models_that_cannot_be_used_are_refused(classifier, tmp_path):
    with pytest.raises(DataError, match=r"no token classifier .*Give a hub name or a directory"):
        TaggerPlan(f"hf:{tmp_path}")
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    model = AutoModelForTokenClassification.from_pretrained(classifier)
    model.config.id2label = {number: f"LABEL_{number}" for number in range(len(LABELS))}
    model.save_pretrained(tmp_path / "unnamed")
    AutoTokenizer.from_pretrained(classifier).save_pretrained(tmp_path / "unnamed")
    with pytest.raises(DataError, match="are not of the BIO kind"):
        TaggerPlan(f"hf:{tmp_path / 'unnamed'}")


@pytest.mark.parametrize("spec", ["", "nothing", "default:x", "hf:", "hf", "dates+", "truecase:now"])
def test_a_spec_that_names_no_tagger_is_refused(spec):
    with pytest.raises(ConfigError, match=r"no tagger .*Join with \+"):
        TaggerPlan(spec)


def test_a_spec_may_leave_parts_out(tmp_path):
    text, sentences = "In 1969 London was wet.", ["We saw London."]
    assert [span.kind for span in learned_from(TaggerPlan("truecase"), sentences).tag(text)] == ["name"]
    assert [span.kind for span in learned_from(TaggerPlan("dates"), sentences).tag(text)] == ["date"]
    assert (
        learned_from(TaggerPlan("default"), sentences).state() == learned_from(TaggerPlan("dates+collocations+truecase"), sentences).state()
    )
    (tmp_path / "phrases.txt").write_text("was wet\n")
    both = learned_from(TaggerPlan("dates", tmp_path / "phrases.txt"), [])
    assert both.state() == learned_from(TaggerPlan(f"gazetteer:{tmp_path / 'phrases.txt'}+dates"), []).state()
    assert [span.kind for span in both.tag(text)] == ["date", "phrase"]


def test_labels_of_tag_sets_have_kinds():
    assert [kind_of(label) for label in ("PER", "DATE", "money", "")] == ["name", "date", "number", "name"]
