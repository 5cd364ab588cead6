"""Following links: the fast path against a plain loop, what the reader gets, and the path that is shown."""

import json

import numpy as np
import pytest
import torch

from realm.answering.answerer import Answerer
from realm.answering.pointing import read_candidates
from realm.cli import show
from realm.documents.change.updates import remove_documents
from realm.documents.ingest.builder import build_corpus
from realm.documents.store.blocks import BlockStore
from realm.errors import ConfigError
from realm.recipe import build_recipe
from realm.search.candidates import DenseCandidates, HybridCandidates, Searching, make_source
from realm.search.links import LINK_SOURCES, Neighbours, Reached, merged
from realm.storage.layout import RunPaths
from realm.training.beams import LiveSource
from realm.training.context import retrieval_facts

LANDS = [
    "Arvad", "Belmor", "Carsin", "Dulwen", "Estrag", "Faldor", "Gorlan", "Hestia", "Ixtor", "Jorvik", "Kelmar", "Lundy", "Morav", "Nestor",
]  # fmt: skip
QUESTIONS = ["Which money pays in the land of Lake Arvadine?", "What lies near Hestia?", "zzz"]


def rows():
    """Lakes lead to lands, and lands to their neighbours; two paragraphs of each land."""
    made = []
    for number, land in enumerate(LANDS):
        other = LANDS[(number + 3) % len(LANDS)]
        lake = f"The deep Lake {land}ine lies in {land}. Fish swim in it all year. Its water flows to {other}."
        made.append({"id": f"lake-{number}", "title": f"Lake {land}ine", "text": lake})
        money = f"The people of {land} pay with the {land.lower()}o. They trade with {other} and travel to Lake {other}ine."
        made.append({"id": f"land-{number}", "title": land, "text": money})
        made.append(
            {"id": f"land-{number}b", "title": land, "text": f"In {number + 1900} winters were long. Nobody counted them, says {other}."}
        )
    return made


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    root = tmp_path_factory.mktemp("linked")
    (root / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()), "utf-8")
    build_corpus([root / "docs.jsonl"], root / "corpus", vocab_size=300, block_length=64)
    return RunPaths(root)


@pytest.fixture
def source(paths, inputs, model, generation, request):
    kind = getattr(request, "param", "hybrid")
    parts = model.embedder, generation.snapshot, generation.index, inputs, paths.index
    return make_source(*parts, Searching(kind, hops=1))


def asked(source, k, questions=QUESTIONS):
    return source.find(questions, source.inputs.store.tokenizer.encode(questions), k)


def slowly(source, question):
    """The best path to every block that links lead to, one pair of blocks at a time: its score and its first block."""
    store, tokens = source.inputs.store, source.inputs.store.tokenizer.encode([question])[0]
    with torch.inference_mode():
        first = source.direct([question], [tokens], LINK_SOURCES)
    best = {}
    for z1, score in zip(first.rows[0].tolist(), first.scores[0].tolist(), strict=True):
        if z1 < 0:
            continue
        block = store.block(z1)
        sentences = [block.text[start:end] for start, end in store.sentences(z1).chars.tolist()]
        wanted = {word for word in question.lower().replace("?", "").split() if word not in ("the", "of", "in")}
        shared = [len(wanted & set(sentence.lower().replace(".", "").replace(",", "").split())) for sentence in sentences]
        added = [store.tokenizer.encode([text])[0] for text in (block.title, sentences[shared.index(max(shared))])]
        with torch.inference_mode():
            query = source.embedded([[*tokens, *added[0], *added[1]]])[0]
        for z2 in Neighbours(store).of_row(z1).tolist():
            place = source.snapshot.block_ids.tolist().index(int(store.block_ids[z2]))
            total = score + float(query @ source.snapshot.vectors[place])
            if z2 not in best or total > best[z2][0]:
                best[z2] = total, z1
    return best


@pytest.mark.parametrize("source", ["hybrid", "dense"], indirect=True)
def test_paths_are_those_of_a_plain_loop(source):
    first = source.direct(QUESTIONS, source.inputs.store.tokenizer.encode(QUESTIONS), LINK_SOURCES)
    pages, tokens = source._pages(), source.inputs.store.tokenizer.encode(QUESTIONS)
    with torch.inference_mode():
        reached = pages.follow(QUESTIONS, tokens, first.rows, first.scores, source.embedded)
    for question, found in zip(QUESTIONS, reached, strict=True):
        expected = slowly(source, question)
        assert len(expected) > 5 and set(found.rows.tolist()) == set(expected)
        assert (np.diff(found.scores) <= 0).all()
        for row, via, score in zip(found.rows.tolist(), found.via.tolist(), found.scores.tolist(), strict=True):
            assert score == pytest.approx(expected[row][0], rel=1e-4, abs=1e-4)
            assert row in Neighbours(source.inputs.store).of_row(via).tolist()
        assert found.scores[0] == pytest.approx(expected[max(expected, key=lambda row: expected[row][0])][0], rel=1e-4)


def test_candidates_are_found_and_led_to_by_turns(source):
    found, direct = asked(source, 8), source.direct(QUESTIONS, source.inputs.store.tokenizer.encode(QUESTIONS), LINK_SOURCES)
    assert isinstance(source, HybridCandidates) and found.via is not None and found.rows.shape == (3, 8)
    for i in range(3):
        rows, via = found.rows[i].tolist(), found.via[i].tolist()
        assert len(set(rows)) == 8 and [place < 0 for place in via] == [True, False] * 4
        mine = [row for row, place in zip(rows, via, strict=True) if place < 0]
        assert mine == [row for row in direct.rows[i].tolist() if row not in set(rows) - set(mine)][: len(mine)]
        for row, place in zip(rows, via, strict=True):
            assert place < 0 or row in Neighbours(source.inputs.store).of_row(place).tolist()
    assert asked(source, 1).via.tolist() == [[-1]] * 3


def test_nothing_changes_without_hops_or_in_training(source):
    tokens = source.inputs.store.tokenizer.encode(QUESTIONS)
    direct = source.direct(QUESTIONS, tokens, 6)
    source.hops = 0
    assert (asked(source, 6).rows == direct.rows).all() and asked(source, 6).via is None
    source.hops = 1
    with torch.no_grad():
        assert (LiveSource(source, source.embedder.eval())(QUESTIONS, tokens, 6).rows == direct.rows).all()


def test_merging_takes_each_block_once_and_ends_where_there_is_no_more():
    reached = Reached(np.array([5, 2, 9]), np.array([1, 1, 2]), np.array([6.0, 4.0, 2.0], np.float32))
    rows, scores, via = merged(np.array([1, 2, 5, -1]), np.array([3.0, 2.5, 1.0, 0.0]), reached, 6)
    assert rows.tolist() == [1, 5, 2, 9, -1, -1]
    assert scores.tolist() == [3.0, 3.0, 2.5, 1.0, 0.0, 0.0] and via.tolist() == [-1, 1, -1, 2, -1, -1]
    none = Reached(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    assert merged(np.array([1, 2]), np.array([1.0, 0.5]), none, 2)[0].tolist() == [1, 2]


def test_blocks_left_out_and_removed_are_not_reached(source, paths, tmp_path):
    store = source.inputs.store
    everything = {row for found in asked(source, len(store)).rows for row in found.tolist()}
    gone = store.live_rows_of_document("land-0")
    assert set(gone.tolist()) <= everything
    left_out = DenseCandidates(source.embedder, source.snapshot, source.index, source.inputs, store.block_ids[gone])
    left_out.hops = 1
    assert not {row for found in asked(left_out, len(store)).rows for row in found.tolist()} & set(gone.tolist())
    import shutil

    shutil.copytree(paths.corpus, tmp_path / "corpus")
    remove_documents(tmp_path / "corpus", ["land-0"])
    later = Neighbours(BlockStore.open(tmp_path / "corpus"))
    row = int(store.live_rows_of_document("lake-0")[0])
    before = {store.doc_id(one) for one in Neighbours(store).of_row(row).tolist()}
    assert before - {store.doc_id(one) for one in later.of_row(row).tolist()} == {"land-0"}


def test_the_path_is_shown_as_evidence(source, model, capsys):
    assert model.reader is not None
    answerer = Answerer(source.inputs, source, model.reading(bf16=False), versions={"params": 1, "index": 1, "corpus": 1})
    (answer,) = answerer.answer(QUESTIONS[:1], k=4)
    titles = {row["title"] for row in rows()}
    led = [evidence for evidence in answer.evidence if evidence.path]
    assert len(led) == len(answer.evidence) - len(led) == 2
    assert all(len(evidence.path) == 2 and evidence.path[1] == evidence.title and set(evidence.path) <= titles for evidence in led)
    show.answer(json.loads(json.dumps(answer.to_dict())), most=4)
    assert f"{led[0].path[0]} -> {led[0].path[1]} ({led[0].doc_id})" in " ".join(capsys.readouterr().out.split())
    found = asked(source, 4, QUESTIONS[:1])
    (tokens,) = source.inputs.store.tokenizer.encode(QUESTIONS[:1])
    assert [list(one) == tokens for one in found.asked[0]] == [True, False, True, False]
    together = answerer._log_p([tokens], found)
    for j, words in enumerate(found.asked[0]):  # each is read as if it were asked alone, with its own question
        row, score = found.rows[:, j : j + 1], torch.from_numpy(found.scores[:, j : j + 1])
        alone = read_candidates(model.reader.eval(), source.inputs, [words], row, score)
        here = alone.valid[0, 0]
        mine, its = together[0, j, : len(here)][here.numpy()], alone.logits[0, 0][here].detach().numpy()
        np.testing.assert_allclose(mine - mine.max(), its - its.max(), atol=1e-4)
    source.hops = 0
    assert all(evidence.path == () for evidence in answerer.answer(QUESTIONS[:1], k=4)[0].evidence)


def test_the_key_of_the_recipe():
    assert build_recipe({}).retrieval.hops == 0 and retrieval_facts(build_recipe({})) == []
    assert retrieval_facts(build_recipe({"retrieval": {"hops": 1}})) == ["hops 1"]
    with pytest.raises(ConfigError, match="hops"):
        build_recipe({"retrieval": {"hops": 2}})
