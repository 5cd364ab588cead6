"""Triples: facts on one subject become one document, and whatever is wrong with a row is counted."""

import json
from collections import Counter

import pytest

from realm.documents.ingest.builder import build_corpus
from realm.documents.links import MOST_LINKS, title_key
from realm.documents.records import Rejected, SourceDocument
from realm.documents.sources import SourceOptions, iter_documents
from realm.documents.sources.triples import sentence
from realm.documents.store.blocks import BlockStore
from realm.documents.store.info import document_blocks
from realm.errors import DataError
from realm.search.links import Neighbours

ROWS = """subject,relation,object
Marie Curie,birthPlace,Warsaw
Warsaw,country,Poland
Marie Curie,field,physics
Marie Curie,field,chemistry
the Rhine,mouth,the North Sea
"""


def write(path, text):
    path.write_text(text, "utf-8")
    return path


def documents(path, options=None):
    """Texts by title, and how many records were rejected for each reason."""
    found = list(iter_documents(path, options or SourceOptions()))
    assert [record.line for record in found] == sorted(record.line for record in found)
    texts = {record.title: record.text for record in found if isinstance(record, SourceDocument)}
    return texts, Counter(record.reason for record in found if isinstance(record, Rejected))


def test_facts_on_a_subject_are_one_document(tmp_path):
    path = write(tmp_path / "facts.csv", ROWS)
    curie, warsaw, rhine = (record for record in iter_documents(path) if isinstance(record, SourceDocument))
    assert (curie.doc_id, curie.title, curie.path, curie.line) == ("facts.csv#Marie Curie", "Marie Curie", str(path), 2)
    assert curie.text == "Marie Curie birth place Warsaw.\nMarie Curie field physics.\nMarie Curie field chemistry."
    assert warsaw.text == "Warsaw country Poland." and rhine.text == "The Rhine mouth the North Sea."
    assert curie.links == tuple((words, title_key(words)) for words in ("Warsaw", "physics", "chemistry"))


@pytest.mark.parametrize("name", ["facts.tsv", "facts.jsonl", "list.json", "facts.dat", "folder"])
def test_every_carrier_is_told_by_its_columns(tmp_path, name):
    """Predicates and values are relations and objects; a file of no known name is told by its first line."""
    rows = [line.split(",") for line in ROWS.splitlines()[1:]]
    objects = [{"Subject": s, "predicate": r, "value": o} for s, r, o in rows]
    texts = {
        "facts.tsv": "\n".join("\t".join(row) for row in [["Head", "Property", "Tail"], *rows]) + "\n",
        "facts.jsonl": "".join(json.dumps(row) + "\n" for row in objects), "list.json": json.dumps(objects, indent=1),
        "facts.dat": ROWS, "folder": ROWS,
    }  # fmt: skip
    if name == "folder":
        (tmp_path / name).mkdir()
        write(tmp_path / name / "facts.csv", ROWS)
    else:
        write(tmp_path / name, texts[name])
    for options in (SourceOptions(), SourceOptions(format="triples")):
        found, rejected = documents(tmp_path / name, options)
        assert list(found) == ["Marie Curie", "Warsaw", "the Rhine"] and not rejected


def test_a_table_with_a_text_stays_one(tmp_path):
    path = write(tmp_path / "mail.csv", "id,subject,relation,object,text\n1,Hello,a,b,How are you?\n")
    assert documents(path)[0] == {"": "How are you?"}
    assert documents(path, SourceOptions(format="triples"))[0] == {"Hello": "Hello a b."}
    with pytest.raises(DataError, match="no columns 'subject', 'relation' and 'object'"):
        documents(write(tmp_path / "other.csv", "name,capital\nFrance,Paris\n"), SourceOptions(format="triples"))


def test_what_is_wrong_with_a_row_is_counted(tmp_path):
    rows = [
        {"subject": "A", "relation": "of", "object": ["B", "C", 7, "B"]},
        {"subject": "A", "relation": "of", "object": "C"}, {"subject": "A", "relation": "of"},
        {"subject": "", "relation": "of", "object": "B"}, {"subject": "A", "relation": "  ", "object": "B"},
        {"subject": "A", "relation": "of", "object": []}, {"subject": "A", "relation": "of", "object": None},
        {"subject": "A", "relation": "of", "object": {"id": 3}}, {"subject": "A", "relation": "of", "object": True},
        ["A", "of", "B"],
    ]  # fmt: skip
    texts, rejected = documents(write(tmp_path / "facts.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + "{broken\n"))
    assert texts == {"A": "A of B.\nA of C.\nA of 7."}
    assert rejected == {
        "repeated triple": 2, "no subject, relation or object": 5, "id, title or text is not a string": 2,
        "not an object": 1, "bad json": 1,
    }  # fmt: skip
    table = write(tmp_path / "facts.csv", "subject,relation,object\nA,of\nA,of,B,C\nA,,B\n\nA,of,B\n")
    assert documents(table) == ({"A": "A of B."}, {"bad row of a table": 2, "no subject, relation or object": 1})


def test_templates(tmp_path):
    path = write(tmp_path / "facts.csv", ROWS)
    toml = write(
        tmp_path / "words.toml", 'birthPlace = "{subject} was born in {object}."\n"*" = "The {relation} of {subject}: {object}."\n'
    )
    texts, _ = documents(path, SourceOptions(templates=str(toml)))
    assert texts["Marie Curie"].splitlines()[:2] == ["Marie Curie was born in Warsaw.", "The field of Marie Curie: physics."]
    same = write(tmp_path / "words.json", json.dumps({"birthPlace": "{object}", "*": "{object}"}))
    assert documents(path, SourceOptions(templates=str(same)))[0]["Warsaw"] == "Poland"


@pytest.mark.parametrize(
    "text",
    ["a = 3", 'a = "{subject}"', 'a = "{object.__class__}"', 'a = "{object!r}"', 'a = "{object:>999999999}"', 'a = "{0} {object}"',
     'a = "{object"', "a = ["],
)  # fmt: skip
def test_templates_that_cannot_be_used(tmp_path, text):
    path, bad = write(tmp_path / "facts.csv", ROWS), write(tmp_path / "bad.toml", text)
    with pytest.raises(DataError, match=r"bad\.toml"):
        documents(path, SourceOptions(templates=str(bad)))


@pytest.mark.parametrize(
    ("relation", "words"),
    [("birthPlace", "birth place"), ("birth_place", "birth place"), ("Capital", "capital"), ("http://x.org/o#birthPlace", "birth place"),
     ("<http://x.org/o/birth-place>", "birth place"), ("P31", "p31")],
)  # fmt: skip
def test_words_of_a_relation(relation, words):
    assert sentence(("it", relation, "that"), {}) == f"It {words} that."
    assert sentence(("it", relation, "that"), {"*": "{relation}{object}"}).casefold() == f"{words}that"


def test_addresses_are_names(tmp_path):
    row = "<http://dbpedia.org/resource/Marie_Curie>\thttp://dbpedia.org/ontology/birthPlace\thttp://dbpedia.org/resource/Warsaw%20(city)\n"
    texts, _ = documents(write(tmp_path / "facts.tsv", f"subject\tpredicate\tobject\n{row}"))
    assert texts == {"Marie Curie": "Marie Curie birth place Warsaw (city)."}


def test_a_table_is_a_corpus_with_links(tmp_path):
    """Objects lead to the documents on them; a subject with more links than are kept, and circles, are no trouble."""
    many = "".join(f"Hub,knows,Thing {number}\nThing {number},knows,Hub\n" for number in range(MOST_LINKS + 50))
    path = write(tmp_path / "facts.csv", ROWS + "Poland,capital,Warsaw\nPoland,neighbour,Poland\n" + many)
    manifest = build_corpus([path], tmp_path / "corpus", vocab_size=400, block_length=128, tagger="none", workers=1)
    assert manifest.rejected == {"more links than are kept": 1}
    store = BlockStore.open(tmp_path / "corpus")
    neighbours = Neighbours(store)

    def led(title):
        rows = store.live_rows_of_document(f"facts.csv#{title}")
        return {store.block(int(end)).title for row in rows for end in neighbours.of_row(int(row))}

    assert led("Marie Curie") == {"Warsaw"} and led("Warsaw") == {"Poland"} and led("Poland") == {"Warsaw"}
    assert led("Thing 7") == {"Hub"} and len(led("Hub")) == MOST_LINKS


def test_the_source_of_a_fact_is_kept(tmp_path):
    toml = write(tmp_path / "words.toml", '"*" = "{relation} = {object}"')
    path = write(tmp_path / "facts.csv", ROWS.replace("Warsaw,country", ",,\nWarsaw,country"))
    options = SourceOptions(templates=str(toml))
    build_corpus([path], tmp_path / "corpus", vocab_size=300, block_length=64, tagger="none", workers=1, source_options=options)
    (facts,) = document_blocks(tmp_path / "corpus", "facts.csv#Warsaw")
    assert (facts["source"], facts["line"], facts["text"]) == (str(path), 4, "Country = Poland")
