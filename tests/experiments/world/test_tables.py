"""A part of the atlas, and the phrases that casing does not give away."""

import pytest

from realm.experiments.world.atlas import ASKED, DEMO_DOMAINS, build_atlas, write_atlas
from realm.experiments.world.tables import bare, load_domains


@pytest.fixture(scope="module")
def part():
    return build_atlas(domains=DEMO_DOMAINS)


def test_the_demo_asks_about_thirty_kinds_of_fact_of_its_domains(part):
    assert set(DEMO_DOMAINS) < {domain.name for domain in load_domains()}
    assert {row["id"].partition("/")[0] for row in part.documents} == set(DEMO_DOMAINS)
    ids = {row["id"] for row in part.documents}
    for questions in part.questions.values():
        assert questions and all(set(q["positive_ids"]) <= ids and q["kind"].partition("/")[0] in DEMO_DOMAINS for q in questions)
    assert 1600 <= len(part.documents) <= 1800
    assert len({q["kind"] for questions in part.questions.values() for q in questions}) == 30


def test_asking_less_changes_the_questions_alone_and_no_name_means_all(part):
    short = build_atlas(domains=DEMO_DOMAINS, asked=ASKED)
    assert (short.documents, short.phrases, short.invented) == (part.documents, part.phrases, part.invented)
    for split, questions in short.questions.items():
        assert questions == [q for q in part.questions[split] if q["kind"].startswith(("countries/", "us_states/"))]
    assert len({q["kind"] for questions in short.questions.values() for q in questions}) == 12
    everything = tuple(domain.name for domain in load_domains())
    assert build_atlas(domains=()) == build_atlas(domains=everything)


def test_phrases_are_the_written_gazetteer(part, tmp_path):
    assert {"pound sterling", "hydrogen", "baht", "yen"} <= set(part.phrases)
    assert part.phrases == sorted(set(part.phrases)) and all(phrase[0].islower() for phrase in part.phrases)
    names = {bare(e.name) for d in load_domains() if d.name in DEMO_DOMAINS for e in d.entities}
    assert {name for name in names if name[:1].islower()} <= set(part.phrases)
    text = " ".join(row["text"] for row in part.documents)
    stated = [phrase for phrase in part.phrases if phrase in text]
    assert len(stated) >= 0.95 * len(part.phrases), "a phrase in no document teaches nothing"
    write_atlas(tmp_path, domains=DEMO_DOMAINS)
    assert (tmp_path / "gazetteer.txt").read_text("utf-8").splitlines() == part.phrases
