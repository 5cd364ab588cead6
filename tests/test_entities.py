"""Entities: what a text names, which blocks speak of it, and what that does to the order of blocks."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from realm.candidates import DenseCandidates, HybridCandidates, Searching, make_source
from realm.config import build_recipe
from realm.corpus.build.builder import build_corpus
from realm.corpus.change.updates import add_documents, remove_documents, update_documents
from realm.corpus.entities import ABOUT, NAMED, Entities, Entity, EntityOverlap
from realm.corpus.links import document_key, title_key
from realm.corpus.mentions import mentions
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs
from realm.data.featurize import Featurizer
from realm.data.types import Question
from realm.errors import ConfigError
from realm.index import hybrid
from realm.index.hybrid import Weights, standardised
from realm.nn.model import RealmModel
from realm.nn.spec import bert_spec, one_body
from realm.paths import RunPaths
from realm.recipes.calibration import ENTITY_WEIGHTS, fit_entities
from realm.recipes.scoring import Relevance
from realm.refresh import Generation, refresh_index

PAGES = (
    ("United Kingdom", "The [[realm]] has four parts. Its capital is London. The United Kingdom is old."),
    ("London", "The city is the capital of the [[United Kingdom|UK]]. Many people of the UK live there."),
    ("Water", "Rain is water. Ice is [[frozen]] water."),
    ("Bali", "An island in Indonesia. Water is all around Bali."),
    ("New York City", "A city in [[New York (state)|New York]]. It is large."),
    ("New York (state)", "A state. Its largest city is New York City, but its capital is not."),
    ("Britain", "#REDIRECT [[United Kingdom]]"),
    (
        "Ferries",
        "They go from [[Britain|the British coast]] to many places, and from London too. Nobody counts them in the [[United Kingdom|UK]].",
    ),
    ("Circle one", "#REDIRECT [[Circle two]]"),
    ("Circle two", "#REDIRECT [[Circle one]]"),
    ("Rings", "Nobody leaves [[Circle one]]. The Rings are round."),
)
TEXTS = [
    "What is the capital of the United Kingdom?",
    "where do people of the uk live",
    "How far is New York City from London?",
    "London is where?",
    "what is new york city",
    "Water is what?",
    "is water wet",
    "who flies to bali",
    "Which ferries leave the UK?",
    "Nobody leaves Circle one.",
    "zzz",
]


def wiki(path: Path, *pages: tuple[str, str]) -> Path:
    made = [
        f"<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>9</id><text>{text}</text></revision></page>"
        for number, (title, text) in enumerate(pages, 1)
    ]
    path.write_text(f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{"".join(made)}</mediawiki>', "utf-8")
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    root = tmp_path_factory.mktemp("entities")
    build_corpus([wiki(root / "wiki.xml", *PAGES)], root / "corpus", vocab_size=300, block_length=32, workers=1)
    return RunPaths(root)


@pytest.fixture(scope="module")
def store(paths: RunPaths) -> BlockStore:
    return BlockStore.open(paths.corpus)


def named(store: BlockStore, text: str) -> list[tuple[str, str]]:
    return [(entity.title, entity.name) for entity in Entities(store).named_in(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXTS[0], [("United Kingdom", "United Kingdom")]),
        (TEXTS[1], [("United Kingdom", "uk")]),  # the words that carry links to it
        (TEXTS[2], [("New York City", "New York City"), ("London", "London")]),  # of names that overlap the longest
        (TEXTS[3], [("London", "London")]),
        (TEXTS[4], [("New York City", "new york city")]),
        ("He saw New York and London.", [("New York (state)", "New York"), ("London", "London")]),
        (TEXTS[5], []), (TEXTS[6], []),  # an ordinary word: its own page writes it small
        ("It fell into the Water.", [("Water", "Water")]),
        (TEXTS[7], [("Bali", "bali")]),
        ("In Bali and Bali and london", [("Bali", "Bali")]),
        (TEXTS[9], []), ("", []), ("?!", []),
    ],
)  # fmt: skip
def test_what_a_text_names(store: BlockStore, text: str, expected: list[tuple[str, str]]) -> None:
    assert named(store, text) == expected
    for entity in Entities(store).named_in(text):
        assert text[entity.start : entity.end] == entity.name


def slowly_spoken(store: BlockStore, row: int, entity: Entity) -> float:
    """Whether a block is about an entity, links to it or names it, without any look-up: every block of the corpus is looked at."""
    blocks = [store.block(other) for other in np.flatnonzero(store.live).tolist()]
    block, titles = store.block(row), {one.title: one for one in reversed(blocks)}
    if block.title == entity.title:
        return ABOUT
    keys = {title_key(one.title) for one in blocks if one.title == entity.title}
    keys |= {document_key(one.doc_id.encode()) for one in blocks if one.title == entity.title}
    if keys.intersection(store.links(row).tolist()):
        return NAMED
    behind = 0
    for place in mentions(block.text, [(start, end) for start, end in store.sentences(row).chars.tolist()]):
        for mention in place:
            alias = {"UK": "United Kingdom", "The British coast": "United Kingdom", "New York": "New York (state)"}.get(mention.name)
            title = mention.name if mention.name in titles else alias
            if mention.start < behind or title is None:
                continue
            if title == entity.title and mention.name in (entity.title, entity.name):
                return NAMED
            behind = mention.end
            break
    return 0.0


def test_blocks_speak_of_what_a_plain_loop_finds(store: BlockStore) -> None:
    entities, found = Entities(store), set()
    for text, row in product(TEXTS, range(len(store))):
        for entity in entities.named_in(text):
            expected = slowly_spoken(store, row, entity)
            assert entities.spoken_of(row, entity) == expected, (entity, store.block(row))
            found.add(expected)
    assert found == {ABOUT, NAMED, 0.0}
    everyone = np.arange(len(store))
    for text in TEXTS:
        some = entities.named_in(text)
        plain = [np.mean([slowly_spoken(store, row, one) for one in some]) if some else 0.0 for row in everyone]
        assert entities.overlap(some, everyone).tolist() == pytest.approx(plain)


def test_overlap_follows_the_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    build_corpus([wiki(tmp_path / "wiki.xml", *PAGES)], corpus, vocab_size=300, block_length=32, workers=1)
    store = BlockStore.open(corpus)
    overlap, ids = EntityOverlap(store), np.array(store.block_ids)

    def spoken(text: str) -> set[str]:
        shares = overlap(text, ids)
        return {store.block(row).title for row in np.flatnonzero(shares).tolist()}

    assert spoken("What is in London?") == {"London", "United Kingdom", "Ferries"}
    assert spoken("where is the uk") == {"London", "United Kingdom", "Ferries"}
    update_documents(corpus, [wiki(tmp_path / "changed.xml", ("United Kingdom", "The realm has four parts. It is old."))], workers=1)
    assert spoken("What is in London?") == {"London", "Ferries"}  # the block that named it is gone
    remove_documents(corpus, ["2"])
    assert spoken("What is in London?") == set()
    add_documents(corpus, [wiki(tmp_path / "more.xml", *[("", "")] * 20, ("London", "A town. London has a river."))], workers=1)
    assert spoken("What is in London?") == {"Ferries"} and overlap("What is in London?", ids).max() == NAMED


def test_a_page_of_very_many_links_is_no_trouble(tmp_path: Path) -> None:
    """Links beyond those that are kept are counted; words that lead to many things stand for none."""
    many = " ".join(f"[[Thing {number}|there]] and [[Thing {number}|it {number}]]." for number in range(10_000))
    pages = (("Hub", f"Start. {many}"), ("Thing 1", "A thing. [[Hub|the middle]] is far."), ("Thing 2", "Another."))
    manifest = build_corpus([wiki(tmp_path / "wiki.xml", *pages)], tmp_path / "corpus", vocab_size=300, workers=1, tagger="none")
    assert manifest.rejected == {"more links than are kept": 1}
    store = BlockStore.open(tmp_path / "corpus")
    assert named(store, "where is there") == [] and named(store, "Where is It 2?") == []
    assert named(store, "Is Thing 2 in The middle?") == [("Thing 2", "Thing 2"), ("Hub", "The middle")]


@pytest.fixture(scope="module")
def inputs(store: BlockStore) -> BlockInputs:
    special = store.tokenizer.special
    return BlockInputs(store, Featurizer(cls=special.cls, sep=special.sep, mask=special.mask, pad=special.pad))


@pytest.fixture(scope="module")
def model(inputs: BlockInputs) -> RealmModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": inputs.store.tokenizer.vocab_size, "hidden": 16, "layers": 1, "heads": 2, "intermediate": 32}
    body = bert_spec(max_length=352, dropout=0.1, attention_dropout=0.0, **sizes)
    model = RealmModel(one_body(body, projection=8))
    for parameter in model.parameters():
        parameter.data.mul_(20 if parameter.dim() > 1 else 1)  # so that texts differ by more than rounding
    return model.fork_document_embedder().with_reader(0, span_hidden=8, max_span=10)


@pytest.fixture(scope="module")
def generation(paths: RunPaths, inputs: BlockInputs, model: RealmModel) -> Generation:
    return refresh_index(model, inputs, paths, step=0)


@pytest.fixture
def sourced(paths: RunPaths, inputs: BlockInputs, model: RealmModel, generation: Generation) -> Callable[..., DenseCandidates]:
    parts = model.embedder, generation.snapshot, generation.index, inputs, paths.index
    return lambda kind, exclude=None, **more: make_source(*parts, Searching(kind, **more), exclude).eval()


def rows_of(source: DenseCandidates, k: int) -> list[list[int]]:
    with torch.inference_mode():
        found = source(TEXTS, source.inputs.store.tokenizer.encode(TEXTS), k).rows
    return [[row for row in rows if row >= 0] for rows in found.tolist()]


@pytest.mark.parametrize("kind", ["hybrid", "dense", "sparse"])
@pytest.mark.parametrize("weight", [0.5, 3.0])
def test_the_order_is_that_of_the_plain_sum(
    sourced: Callable[..., DenseCandidates], store: BlockStore, kind: str, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever proposes: its own blocks, ordered by its own standardised scores and the overlap."""
    monkeypatch.setattr(hybrid, "DEPTH", 6)
    source = sourced(kind, weights=Weights(1.0, weight), entities=True)
    plain = sourced("hybrid")
    changed = 0
    for text, found, without in zip(TEXTS, rows_of(source, 4), rows_of(sourced(kind), 4), strict=True):
        with torch.inference_mode():
            query = plain.embedded(store.tokenizer.encode([text]))[0].numpy()
        products = np.asarray(plain.snapshot.vectors, np.float32) @ query
        points = plain.search.sparse.scores(text)  # type: ignore[attr-defined]
        near = np.argsort(-products, kind="stable")[:6]
        worded = [row for row in np.argsort(-points, kind="stable")[:6].tolist() if points[row] > 0]
        proposed = {"dense": near.tolist(), "sparse": worded, "hybrid": list(dict.fromkeys([*near.tolist(), *worded]))}[kind]
        seen = np.where(np.isin(np.arange(len(store)), worded), points, 0)
        dense, sparse = standardised(products, products[near]), standardised(seen, np.sort(points)[::-1][:6])
        score = {"dense": dense, "sparse": sparse, "hybrid": dense + sparse}[kind]
        some = Entities(store).named_in(text)
        total = {row: score[row] + weight * np.mean([slowly_spoken(store, row, e) for e in some] or [0.0]) for row in proposed}
        best = sorted(total.values(), reverse=True)[:4]
        assert [total[row] for row in found] == pytest.approx(best, abs=1e-4), text
        changed += found != without
    assert changed or weight < 1


@pytest.mark.parametrize("kind", ["hybrid", "dense", "sparse"])
def test_at_weight_0_nothing_changes_and_excluded_blocks_stay_so(
    sourced: Callable[..., DenseCandidates], store: BlockStore, kind: str
) -> None:
    plain = rows_of(sourced(kind), 5)
    assert rows_of(sourced(kind, entities=True), 5) == plain
    left_out = np.array(store.block_ids)[[row for row in range(len(store)) if store.block(row).title == "London"]]
    for rows in rows_of(sourced(kind, weights=Weights(1.0, 50.0), entities=True, exclude=left_out), 5):
        assert "London" not in {store.block(row).title for row in rows}


def test_the_weight_is_the_least_that_finds_most_answers(
    sourced: Callable[..., DenseCandidates], store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, relevance = sourced("dense", entities=True), Relevance(store)
    assert isinstance(source, HybridCandidates)
    tokens = store.tokenizer.encode(TEXTS)
    weights = [Weights(1.0, weight) for weight in ENTITY_WEIGHTS]
    for weight, rows in zip(weights, source.rows_by_weight(TEXTS, tokens, weights, 4), strict=True):
        assert [[row for row in one if row >= 0] for one in rows.tolist()] == rows_of(sourced("dense", weights=weight, entities=True), 4)
    dev = [Question(str(n), text, ("city",)) for n, text in enumerate(TEXTS)]

    def fitted(good: list[float]) -> dict[str, Any]:
        drawn = (np.full(5, weight in good) for weight in ENTITY_WEIGHTS for _ in dev)
        monkeypatch.setattr(relevance, "by_answer", lambda question, rows: next(drawn))
        return fit_entities(source, relevance, dev)

    assert fitted([4.0, 1.0])["entities_weight"] == 1.0 and fitted([])["entities_weight"] == 0.0
    assert fitted([2.0])["entities_fit"] == {"n": len(dev), "recall": 1.0, "recall_without": 0.0}
    with pytest.raises(ConfigError, match=r"'retrieval\.entities' is -1"):
        build_recipe({"retrieval": {"entities": -1.0}})


def test_a_run_fits_the_weight_and_searches_with_it(tmp_path: Path, write_tiny: Any) -> None:
    from realm.opening import open_run
    from realm.pipeline import run_recipe
    from realm.progress import Progress

    recipe, root = write_tiny(tmp_path), tmp_path / "run"
    recipe.write_text(recipe.read_text("utf-8") + '[retrieval]\nentities = "auto"\n', "utf-8")
    run_recipe(recipe, root, stages=None, progress=Progress(quiet=True))
    facts = json.loads((root / "stages" / "finetune" / "stage.json").read_text("utf-8"))
    assert facts["entities_weight"] in ENTITY_WEIGHTS and facts["entities_fit"]["recall"] >= facts["entities_fit"]["recall_without"]
    run = open_run(root)
    assert isinstance(run.source, HybridCandidates) and run.source.search.sparse is None
    assert run.source.weights == Weights(1.0, facts["entities_weight"])
    shown = run.explain_search("What is the currency of Arvad?", 3)
    assert [hit["sparse"] for hit in shown] == [None] * 3 and all(0 <= hit["entities"] <= 1 for hit in shown)
