"""Tests of the bundled demo world."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from importlib import resources

import pytest
from tokenizers import BertWordPieceTokenizer

from realm.experiments.world.articles import Ledger, count_tokens, write_domain
from realm.experiments.world.atlas import build_atlas, separate_answers, write_atlas
from realm.experiments.world.tables import bare, fields, load_domains, normalise_answer, parse_domain, slug

FACTS = [
    ("countries/france", "capital", "Paris"), ("countries/united-kingdom", "currency", "pound sterling"),
    ("countries/united-kingdom", "capital", "London"), ("countries/japan", "currency", "yen"),
    ("countries/japan", "highest", "Mount Fuji"), ("countries/canada", "capital", "Ottawa"),
    ("countries/australia", "capital", "Canberra"), ("countries/brazil", "language", "Portuguese"),
    ("countries/egypt", "capital", "Cairo"), ("countries/germany", "code", "49"), ("countries/italy", "domain", ".it"),
    ("countries/hungary", "currency", "forint"), ("countries/kenya", "capital", "Nairobi"),
    ("countries/netherlands", "capital", "Amsterdam"), ("countries/poland", "capital", "Warsaw"),
    ("countries/thailand", "currency", "baht"), ("rivers/rhine", "mouth", "North Sea"),
    ("rivers/danube", "mouth", "Black Sea"), ("rivers/volga", "mouth", "Caspian Sea"),
    ("rivers/seine", "length", "777"), ("rivers/blue-nile", "source", "Lake Tana"),
    ("rivers/mississippi-river", "source", "Lake Itasca"), ("mountains/mount-everest", "height", "8849"),
    ("mountains/mount-everest", "year", "1953"), ("mountains/mont-blanc", "height", "4810"),
    ("mountains/matterhorn", "year", "1865"), ("mountains/k2", "range", "Karakoram"),
    ("mountains/kilimanjaro", "height", "5895"), ("lakes/lake-baikal", "depth", "1642"),
    ("lakes/lake-baikal", "outflow", "Angara"), ("lakes/lake-geneva", "outflow", "Rhône"),
    ("islands/sicily", "peak", "Mount Etna"), ("islands/tenerife", "peak", "Teide"),
    ("islands/corsica", "town", "Ajaccio"), ("cities/agra", "landmark", "Taj Mahal"),
    ("cities/florence", "water", "Arno"), ("cities/munich", "region", "Bavaria"),
    ("us_states/texas", "capital", "Austin"), ("us_states/alaska", "year", "1959"),
    ("us_states/california", "nickname", "Golden State"), ("us_states/florida", "code", "FL"),
]  # fmt: skip


@pytest.fixture(scope="module")
def atlas():
    return build_atlas(0)


@pytest.fixture(scope="module")
def questions(atlas):
    return [q for split in ("train", "dev", "test") for q in atlas.questions[split]]


@pytest.fixture(scope="module")
def written():
    ledger = Ledger(0)
    return ledger, [(domain, write_domain(domain, ledger)) for domain in load_domains()]


@pytest.fixture(scope="module")
def tokenizer(atlas, questions):
    wordpiece = BertWordPieceTokenizer(lowercase=True)
    texts = [_full(document) for document in atlas.documents]
    wordpiece.train_from_iterator(texts + [q["question"] for q in questions], vocab_size=6000, show_progress=False)
    return wordpiece


def _full(document):
    return f"{document['title']} {document['text']}"


def _pieces(tokenizer, text):
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def test_counts_and_lengths(atlas, questions, tokenizer):
    assert len(atlas.documents) >= 1500
    assert len(questions) >= 2000
    assert len(atlas.questions["train"]) >= 1400
    assert len(atlas.questions["dev"]) >= 100
    assert len(atlas.questions["test"]) >= 400
    assert len({q["kind"] for q in questions}) >= 12
    lengths = [_pieces(tokenizer, _full(d)) for d in atlas.documents]
    assert min(lengths) >= 60
    assert max(lengths) <= 250
    assert sum(lengths) / len(lengths) < 95
    assert _pieces(tokenizer, _full(atlas.invented["document"])) >= 60
    assert not {a for q in questions for a in q["answers"] if _pieces(tokenizer, a) > 10}


def test_nothing_stands_twice(atlas, questions, written):
    documents = atlas.documents
    assert len({d["id"] for d in documents}) == len(documents)
    assert len({d["text"] for d in documents}) == len(documents)
    assert len({q["id"] for q in questions}) == len(questions)
    assert [title for title, count in Counter(d["title"] for d in documents).items() if count > 1] == []
    assert [text for text, count in Counter(q["question"] for q in questions).items() if count > 1] == []
    sentences = Counter(text for _, articles in written[1] for article in articles for text in article.sentences)
    assert [text for text, count in sentences.items() if count > 1] == []


def test_every_fact_twice(written):
    ledger, domains = written
    for domain, articles in domains:
        texts = {article.id: article.text for article in articles}
        for entity in domain.entities:
            own = [f"{entity.key}/{number}" for number in range(3) if f"{entity.key}/{number}" in texts]
            assert len(own) in (2, 3)
            for kind in domain.kinds_of(entity):
                stating = [id_ for id_ in ledger.stated[entity.key, kind.name] if id_ in own]
                assert len(stating) >= 2, (entity.key, kind.name)
                value = bare(str(entity.value(kind.name)))
                assert all(value in texts[id_] for id_ in stating)


def test_positives_contain_answers(atlas, questions):
    texts = {d["id"]: d["text"] for d in atlas.documents}
    for question in questions:
        positives = question["positive_ids"]
        assert len(set(positives)) == len(positives) >= 2
        for id_ in positives:
            assert question["answers"][0] in texts[id_], (question["id"], id_)


def test_questions_name_their_entity_and_are_not_statements(questions):
    names = {e.key: bare(e.name) for domain in load_domains() for e in domain.entities}
    for question in questions:
        assert names[question["id"].rsplit("/", 2)[0]] in question["question"]
        assert question["question"].endswith("?")
    for domain in load_domains():
        for kind in domain.facts.values():
            assert not set(kind.questions) & set(kind.statements)


def test_splits_share_no_entity_and_no_answer(atlas):
    entities, answers = defaultdict(set), defaultdict(set)
    for split, questions in atlas.questions.items():
        for question in questions:
            entities[split].add(question["id"].rsplit("/", 2)[0])
            answers[split] |= {normalise_answer(a) for a in question["answers"]}
    assert not entities["train"] & (entities["dev"] | entities["test"])
    assert not entities["dev"] & entities["test"]
    assert not answers["train"] & (answers["dev"] | answers["test"])


def test_separate_answers():
    def question(id_, answer):
        return {"id": id_, "answers": [answer]}

    splits = separate_answers( {
        "train": [question(f"d/{i}/k/0", "the Euro") for i in range(3)] + [question("d/5/k/0", "Yen")],
        "dev": [question("d/6/k/0", "euro")], "test": [question("d/7/k/0", "yen"), question("d/8/k/0", "baht")],
    })  # fmt: skip
    assert [q["id"] for q in splits["train"]] == ["d/0/k/0", "d/1/k/0", "d/2/k/0"]
    assert splits["dev"] == []
    assert [q["id"] for q in splits["test"]] == ["d/7/k/0", "d/8/k/0"]


def test_the_atlas_is_its_seed_s(tmp_path, atlas):
    digests = []
    for name in ("a", "b"):
        write_atlas(tmp_path / name)
        digests.append({f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted((tmp_path / name).iterdir())})
    assert digests[0] == digests[1]
    assert set(digests[0]) == {
        "documents.jsonl", "gazetteer.txt", "qa_train.jsonl", "qa_dev.jsonl", "qa_test.jsonl", "invented.jsonl",
        "invented_qa.jsonl",
    }  # fmt: skip
    assert set(json.loads((tmp_path / "a" / "documents.jsonl").read_text(encoding="utf-8").splitlines()[0])) == {"id", "title", "text"}
    countries = next(domain for domain in load_domains() if domain.name == "countries")
    texts = {document["text"] for document in atlas.documents}
    assert not {article.text for article in write_domain(countries, Ledger(1))} <= texts


@pytest.mark.parametrize(("key", "kind", "answer"), FACTS)
def test_known_facts(atlas, key, kind, answer):
    assert {e.key: e for domain in load_domains() for e in domain.entities}[key].answers(kind)[0] == answer
    assert sum(answer in text for text in [d["text"] for d in atlas.documents if d["id"].startswith(f"{key}/")]) >= 2


def test_pound_sterling(atlas):
    found = [
        sentence
        for document in atlas.documents
        for sentence in document["text"].split(". ")
        if "pound sterling" in sentence and "the United Kingdom" in sentence
    ]
    assert len(set(found)) >= 2


def test_tables_have_sources_and_wordings_and_are_listed():
    for domain in load_domains():
        notes = (
            resources.files("realm.experiments.world").joinpath("tables", f"{domain.name}.csv").read_text(encoding="utf-8").splitlines()[:2]
        )
        assert [note.partition(":")[0].strip("# ").lower() for note in notes] == ["source", "licence"], domain.name
        assert all(note.partition(":")[2].strip() for note in notes), domain.name
    domains = load_domains()
    for domain in domains:
        _check(domain)
    names = [slug(entity.name) for domain in domains for entity in domain.entities]
    assert len(names) == len(set(names)), "two entities of the same name"
    readme = resources.files("realm.experiments.world").joinpath("README.md").read_text(encoding="utf-8")
    for domain in load_domains():
        assert f"| {domain.name} |" in readme


def test_invented_country_is_not_in_the_atlas(atlas, questions):
    everything = " ".join(map(_full, atlas.documents)) + " ".join(q["question"] for q in questions)
    document = atlas.invented["document"]
    assert document["title"] == "Tarvania"
    assert len(atlas.invented["questions"]) >= 2
    for word in ("Tarvania", "Marenburg", "florin"):
        assert word not in everything
    for question in atlas.invented["questions"]:
        assert question["answers"][0] in document["text"]


def test_helpers():
    assert normalise_answer("The Sagrada Família!") == "sagrada familia"
    assert slug("the Côte d'Or") == "cote-d-or"
    assert bare("the North Sea") == "North Sea"
    assert count_tokens("It rises, slowly.") == 5


@pytest.mark.parametrize(("table", "wording", "message"), [
    ("name,size\nX,1,2\n", "", "wrong number of cells"),
    ("name,size\nX,1\n", "statements = ['{name} {value}']", "fewer than"),
    ("name,size\nX,1\n", "statements = ['a {name}', 'b', 'c', 'd']\nask = false", "in 'a"),
])  # fmt: skip
def test_bad_tables_are_refused(table, wording, message):
    spec = f"domain = 'd'\ntitles = ['{{name}}', 'On {{name}}']\n[facts.size]\n{wording or 'statements = []'}\n"
    with pytest.raises(ValueError, match=message):
        _check(parse_domain("d", table, spec))


def _check(domain):
    """Wordings that state and ask every fact often enough, and name columns that there are."""
    for kind in domain.facts.values():
        if len(set(kind.statements)) < 4 or (kind.ask and len(set(kind.questions)) < 3):
            raise ValueError(f"{domain.name}, {kind.name}: fewer than 4 statements or 3 questions")
        for text in kind.statements:
            if not {"value", "name"} <= set(fields(text)):
                raise ValueError(f"{domain.name}, {kind.name}: no {{name}} or {{value}} in {text!r}")
        for text in kind.questions:
            if "value" in fields(text) or "name" not in fields(text) or not text.endswith("?"):
                raise ValueError(f"{domain.name}, {kind.name}: bad question {text!r}")
    assert 2 <= len(set(domain.titles)) <= 3, domain.name
    own = {f for kind in domain.facts.values() for text in (*kind.statements, *kind.questions) for f in fields(text)} - {"value"}
    used = own | {f for text in (*domain.titles, *domain.intro, *domain.filler) for f in fields(text)} | set(domain.facts)
    used |= {column for column in (*domain.groups, domain.related) if column}
    assert used <= {"name", *(column for entity in domain.entities for column in entity.cells)}, domain.name
