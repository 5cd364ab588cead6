"""Explanations: the contract's keys, p(y|x) as the enumerated sum, exclusions, spans of several wordpieces, several masks."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small import corpus_of

from realm.answering.cloze import hidden_runs, masked_text
from realm.answering.explain import best_spans, document_effects, explain, whole_names
from realm.answering.pointing import PointedString
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError, DataError, RunError
from realm.models.model import RealmModel
from realm.models.spec import bert_spec, one_body
from realm.models.types import MaskedQuery
from realm.search.blocks import NULL_ROW, BlockInputs, open_inputs
from realm.search.publishing.generation import Generation
from realm.search.publishing.refresher import refresh_index
from realm.storage.layout import RunPaths

SENTENCE = "The [MASK] is the currency of the United Kingdom."
DOCUMENTS = [
    ("pound", "Pound sterling", "The pound sterling is the currency of the United Kingdom. It is divided into pence."),
    ("uk", "United Kingdom", "In the United Kingdom people pay with the pound sterling. London is its capital."),
    ("britain", "Great Britain", "Great Britain is an island. The pound  sterling IS the currency of the United Kingdom."),
    *((f"d{i}", f"Country {i}", f"Country number {i} has a capital and a currency. Its river is long.") for i in range(12)),
]


@dataclass(frozen=True)
class World:
    model: RealmModel
    generation: Generation
    inputs: BlockInputs

    def explain(self, text=SENTENCE, **options):
        return explain(self.model, self.generation, self.inputs, text, **options)

    def ids(self, *documents):
        rows = np.concatenate([self.inputs.store.rows_of_document(d) for d in documents])
        return sorted(np.asarray(self.inputs.store.block_ids)[rows].tolist())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A random model whose live embedder has moved away from the published one."""
    root = tmp_path_factory.mktemp("explain")
    inputs = open_inputs(corpus_of(root, DOCUMENTS, vocab_size=300), 48)
    torch.manual_seed(0)
    size = {"hidden": 16, "layers": 1, "heads": 2, "intermediate": 32, "max_length": 512, "dropout": 0.1, "attention_dropout": 0.0}
    model = RealmModel(one_body(bert_spec(vocab_size=inputs.store.tokenizer.vocab_size, **size), projection=16))
    generation = refresh_index(model, inputs, RunPaths(root), step=0)
    with torch.no_grad():
        model.embedder.dense.weight.add_(0.2 * torch.randn_like(model.embedder.dense.weight))
        # Random bodies hardly tell inputs apart: louder heads make the candidates differ.
        model.encoder.head.norm.weight.mul_(20)
    return World(model, generation, inputs)


def enumerated(world, explanation):
    """p(z|x) and p(y|z,x) of each candidate, one plain forward pass at a time."""
    store, features = world.inputs.store, world.inputs.featurizer
    spans = store.tokenizer.encode(list(explanation.targets))
    pieces = store.tokenizer.encode(explanation.text.split("[MASK]"))
    ids, where = list(pieces[0]), []
    for span, after in zip(spans, pieces[1:], strict=True):
        where += range(len(ids), len(ids) + len(span))
        ids += [features.mask] * len(span) + after
    wanted = [i for span in spans for i in span]
    embedder, encoder = world.model.embedder, world.model.encoder
    assert embedder is not None and encoder is not None
    scores, given = [], []
    with torch.inference_mode():
        for candidate in explanation.candidates:
            row = NULL_ROW if candidate.null else int(store.rows_of(np.array([candidate.block_id]))[0])
            scores.append((embedder([features.query(ids)]) * embedder([world.inputs.block(row)])).sum().double())
            log_probs = encoder.log_probs([world.inputs.joint(ids, row)], torch.tensor([where]) + 1)[0].double()
            given.append(float(torch.stack([log_probs[j, i] for j, i in enumerate(wanted)]).sum().exp()))
    return torch.stack(scores).softmax(0).tolist(), given


@pytest.mark.parametrize(("text", "targets"), [
    (SENTENCE, ["pound"]), (SENTENCE, ["pound sterling"]),
    ("The [MASK] is the currency of the [MASK].", ["pound sterling", "United Kingdom"]),
    ("[MASK] pays with pence", ["Great Britain"]), (SENTENCE, []), ("The [MASK] is the currency of [MASK].", []),
])  # fmt: skip
def test_p_y_is_the_enumerated_sum_and_r_its_gradient(world, text, targets):
    found = world.explain(text, targets=targets)
    p_z, given = enumerated(world, found)
    assert [c.p_z for c in found.candidates] == pytest.approx(p_z, abs=1e-5)
    assert [c.p_y_given_z for c in found.candidates] == pytest.approx(given, rel=1e-3)
    assert found.p_y == pytest.approx(sum(c.p_z * c.p_y_given_z for c in found.candidates), rel=1e-6)
    assert sum(c.p_z for c in found.candidates) == pytest.approx(1, abs=1e-6)
    assert found.p_y_null == found.candidates[0].p_y_given_z
    for c in found.candidates:
        assert c.r == pytest.approx((c.p_y_given_z / found.p_y - 1) * c.p_z, abs=1e-6)
        assert c.utility == pytest.approx(np.log(c.p_y_given_z / found.p_y_null), abs=1e-6)
    assert sum(c.r for c in found.candidates) == pytest.approx(0, abs=1e-6)


def test_named_documents_and_with_a_target_those_that_hold_the_sentence_are_excluded(world):
    everything = {"k": len(DOCUMENTS) + 5}
    found = world.explain(targets=["pound sterling"], **everything)
    assert list(found.excluded) == world.ids("pound", "britain")  # case and white space do not count
    assert {c.block_id for c in found.candidates[1:]} == set(world.ids(*(d[0] for d in DOCUMENTS))) - set(found.excluded)
    assert world.explain(targets=["euro"], **everything).excluded == world.explain(**everything).excluded == ()
    assert world.explain("Great Britain is an island. The [MASK] is the currency.", targets=["pound"]).excluded == ()
    assert list(world.explain("Hello there. [MASK] is its capital.", targets=["London"]).excluded) == world.ids("uk")
    found = world.explain(targets=["pound"], exclude_documents=["uk", "d3"], k=40)
    assert list(found.excluded) == world.ids("uk", "d3")
    assert not set(found.excluded) & {c.block_id for c in found.candidates}


def test_the_published_embedder_searches(world):
    found = world.explain("The [MASK] is a country.", targets=["capital"], k=5)
    features, tokenizer = world.inputs.featurizer, world.inputs.store.tokenizer
    before, span, after = tokenizer.encode(["The ", "capital", " is a country."])
    query = [features.query([*before, *[features.mask] * len(span), *after])]
    hits = world.generation.index.search(world.generation.embedder.embed_questions(query), 4)
    live = world.generation.index.search(world.model.embedder.embed_questions(query), 4)
    assert [c.block_id for c in found.candidates[1:]] == hits.ids[0].tolist() != live.ids[0].tolist()


def test_predictions_are_distinct_ordered_and_have_their_probability(world):
    found = world.explain(top=8)
    p = [q.p for q in found.predictions]
    assert p == sorted(p, reverse=True) and len({q.text for q in found.predictions}) == len(p) == 8
    assert found.targets == (found.predictions[0].text,) and found.p_y == pytest.approx(p[0], rel=1e-6)
    several = world.explain("The [MASK] is the currency of [MASK].")
    assert len(several.targets) == 2 and several.predictions[0].text == " | ".join(several.targets)
    assert (again := world.explain(targets=[found.predictions[0].text])).excluded or again.p_y == pytest.approx(found.p_y, rel=1e-6)
    found = world.explain(targets=["pound sterling"])  # of its own masked input
    assert world.explain(targets=[found.predictions[0].text]).p_y >= found.p_y * (1 - 1e-6)


def test_a_part_of_a_tagged_name_counts_for_the_name(world):
    store, key, row = world.inputs.store, world.inputs.span_places.key, int(world.inputs.store.rows_of_document("uk")[0])
    (first, last), ids = store.spans(row).tokens[0].tolist(), store.token_ids(row).tolist()  # United Kingdom
    part, name = (PointedString(key(ids[at:last]), p, (row, at, last)) for at, p in ((first + 1, 0.3), (first, 0.2)))
    assert whole_names([part, name], world.inputs) == [replace(name, p=0.5)]
    assert whole_names([part, replace(name, p=0.1)], world.inputs) == [part, replace(name, p=0.1)], "the name fits far worse"


def test_beam_search_finds_the_best_joint_spans():
    torch.manual_seed(1)
    log_p_z = torch.randn(3, dtype=torch.float64).log_softmax(0)
    log_probs = (3 * torch.randn(3, 2, 7, dtype=torch.float64)).log_softmax(-1)
    every = {(i, j): float((log_p_z + log_probs[:, 0, i] + log_probs[:, 1, j]).exp().sum()) for i in range(1, 7) for j in range(1, 7)}
    best = sorted(every.items(), key=lambda pair: -pair[1])[:5]
    found = best_spans(log_p_z, log_probs, 49, [0])[:5]
    assert [tuple(ids) for ids, _ in found] == [ids for ids, _ in best]
    assert [p for _, p in found] == pytest.approx([p for _, p in best])


@pytest.mark.parametrize(("text", "options", "kind", "words"), [
    ("no mask here", {}, DataError, "[MASK]"), (SENTENCE, {"targets": ["a", "b"]}, DataError, "2 targets for 1"),
    ("[MASK] and [MASK]", {"targets": ["a"]}, DataError, "1 targets for 2"),
    (SENTENCE, {"targets": [" "]}, DataError, "no wordpieces"), (SENTENCE, {"targets": ["ϟ"]}, DataError, "vocabulary"),
    (SENTENCE, {"exclude_documents": ["nobody"]}, DataError, "nobody"),
    ("long " * 60 + "[MASK]", {}, DataError, "a query holds 46"),
    (SENTENCE, {"targets": ["pound " * 46]}, DataError, "a query holds 46"),
    (SENTENCE, {"k": 0}, ConfigError, "at least 1"),
])  # fmt: skip
def test_bad_input_is_one_line_with_a_cure(world, text, options, kind, words):
    with pytest.raises(kind) as caught:
        world.explain(text, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value) and (caught.value.cure or kind is ConfigError)
    with pytest.raises(RunError, match="pretrain"):
        explain(world.model.with_parts(encoder=None), world.generation, world.inputs, SENTENCE)


def test_text_of_several_spans_and_of_a_sentence_that_changed(tiny_run):
    store = BlockStore.open(tiny_run / "corpus")
    ids = store.token_ids(0)[slice(*store.sentences(0).tokens[0])].tolist()
    query = MaskedQuery(ids, [0, 1, 3], [ids[0], ids[1], ids[3]], int(store.block_ids[0]), 0)
    assert hidden_runs(query.positions) == [(0, 2), (3, 4)]
    text, targets = masked_text(store, query)
    assert text.count("[MASK]") == 2 and len(targets) == 2
    assert store.block(0).text.startswith(text.replace("[MASK]", targets[0], 1).replace("[MASK]", targets[1], 1))
    for other in (MaskedQuery(ids[::-1], [0], [ids[-1]], int(store.block_ids[0]), 0), MaskedQuery(ids, [1], [ids[1]], 10**9, 0)):
        text, targets = masked_text(store, other)
        assert text.count("[MASK]") == 1 and targets[0]
    assert masked_text(store, MaskedQuery(ids, [1], [ids[1]], int(store.block_ids[0]), 99))[0].count("[MASK]") == 1


def test_without_a_null_document_there_is_no_utility(tiny_run):
    store, log_p_z = BlockStore.open(tiny_run / "corpus"), torch.tensor([0.25, 0.75]).log()
    found = document_effects(store, np.asarray(store.block_ids)[:2], log_p_z, torch.tensor([[-1.0, -1.0], [-2.0, -0.5]]))
    assert [c.utility for c in found] == [None, None] and not any(c.null for c in found)
    assert [c.p_y_given_z for c in found] == pytest.approx(np.exp([-2.0, -2.5]).tolist())
