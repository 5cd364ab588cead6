"""The atlas: a small encyclopaedia of true facts, with questions on it, split by entity and by answer.

``python -m realm.experiments.world.atlas DIRECTORY`` writes the part of it that recipes/from-nothing.toml learns from."""

import argparse
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from realm.experiments.world.articles import Article, Ledger, write_domain, write_entity
from realm.experiments.world.tables import Domain, Entity, bare, load_domains, normalise_answer, rank, render, shuffled

DEMO_DOMAINS = ("countries", "elements", "moons", "rivers", "us_states", "works")
"""The part of the atlas that the demo trains on: some 1,700 articles with 30 kinds of fact, what an hour on two cores allows."""
ASKED = ("countries", "us_states")
"""Kinds of fact that a start from nothing asks about: with all 30, fine-tuning ends before the reader heeds the question."""
SPLITS = ("train", "dev", "test")
_TEST_SHARE = 0.2
_DEV_SHARE = 0.1
_TRAIN_WORDINGS = 2
_RARE = 2
_LONGEST_ANSWER = 21
"""In characters, so that it has at most ten WordPieces."""


Question = dict[str, Any]


def make_questions(domains: list[Domain], ledger: Ledger) -> dict[str, list[Question]]:
    """Questions of the three splits, which share no entity and no answer."""
    splits: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for domain in domains:
        keys = sorted((e.key for e in domain.entities), key=lambda key: rank(ledger.seed, "split", key))
        tests = round(len(keys) * _TEST_SHARE)
        devs = round(len(keys) * _DEV_SHARE)
        where = {key: "test" if i < tests else "dev" if i < tests + devs else "train" for i, key in enumerate(keys)}
        for entity in domain.entities:
            split = where[entity.key]
            splits[split] += _ask_entity(domain, entity, split, ledger)
    return separate_answers(splits)


def _ask_entity(domain: Domain, entity: Entity, split: str, ledger: Ledger) -> list[Question]:
    limit = _TRAIN_WORDINGS if split == "train" else 1
    questions: list[Question] = []
    for kind in domain.kinds_of(entity):
        answers = [a for a in entity.answers(kind.name) if len(a) <= _LONGEST_ANSWER]
        if not kind.ask or entity.answers(kind.name)[:1] != answers[:1]:
            continue
        order = shuffled(kind.questions, ledger.seed, "question", entity.key, kind.name)
        asked = [text for text in (render(t, entity) for t in order) if text is not None]
        questions += [
            {
                "id": f"{entity.key}/{kind.name}/{number}",
                "question": text,
                "answers": answers,
                "positive_ids": sorted(ledger.stated[entity.key, kind.name]),
                "kind": f"{domain.name}/{kind.name}",
            }
            for number, text in enumerate(asked[:limit])
        ]
    return questions


def separate_answers(splits: dict[str, list[Question]]) -> dict[str, list[Question]]:
    """Drop questions until no train question has an answer of a dev or test one.

    Answers of one or two facts of train are given to dev and test; questions with commoner answers stay in train only."""
    facts = {q["id"].rpartition("/")[0]: _normal(q) for q in splits["train"]}
    common = Counter(answer for answers in facts.values() for answer in answers)
    held = {split: [q for q in splits[split] if all(common[a] <= _RARE for a in _normal(q))] for split in ("dev", "test")}
    taken = {answer for questions in held.values() for q in questions for answer in _normal(q)}
    train = [q for q in splits["train"] if not taken & _normal(q)]
    return {"train": train, **held}


def _normal(question: Question) -> set[str]:
    return {normalise_answer(answer) for answer in question["answers"]}


_CELLS = {"capital": "Marenburg", "currency": "silver florin", "language": "Tarvanian", "continent": "Europe", "domain": ".tq"}
INVENTED = Entity("invented", "Tarvania", {kind: (value,) for kind, value in _CELLS.items()})
"""A country that does not exist, to be added to the atlas by the demo."""
_INVENTED_KINDS = ("currency", "capital", "language")


@dataclass(frozen=True)
class Atlas:
    """Documents, questions by split, and an invented country."""

    documents: list[dict[str, str]]
    questions: dict[str, list[dict[str, Any]]]
    invented: dict[str, Any]
    phrases: list[str]


def build_atlas(seed: int = 0, domains: tuple[str, ...] = (), asked: tuple[str, ...] = ()) -> Atlas:
    """Build the atlas, the same for the same seed, of ``domains`` (default all), some of them ``asked`` about; the split ignores the
    latter."""
    return atlas_of([domain for domain in load_domains() if not domains or domain.name in domains], seed, asked)


def atlas_of(chosen: list[Domain], seed: int = 0, asked: tuple[str, ...] = ()) -> Atlas:
    """The articles of any tables and the questions on them. Arguments as for ``build_atlas``."""
    ledger = Ledger(seed)
    articles = [article for domain in chosen for article in write_domain(domain, ledger)]
    note_links(chosen, ledger)
    questions = make_questions(chosen, ledger)
    return Atlas(
        documents=[_document(article) for article in articles],
        questions={split: [q for q in rows if not asked or q["kind"].partition("/")[0] in asked] for split, rows in questions.items()},
        invented=_invent(chosen, seed),
        phrases=lower_case_phrases(chosen),
    )


def lower_case_phrases(domains: list[Domain]) -> list[str]:
    """Names and asked-for values that casing cannot give away ("pound sterling", "hydrogen"), for the salient-span gazetteer."""
    found: set[str] = set()
    for domain in domains:
        for entity in domain.entities:
            values = [entity.name, *(str(entity.value(kind)) for kind, fact in domain.facts.items() if fact.ask and entity.value(kind))]
            found.update(bare(value) for value in values if bare(value)[:1].islower())
    return sorted(found)


def write_atlas(directory: Path, seed: int = 0, domains: tuple[str, ...] = (), asked: tuple[str, ...] = ()) -> None:
    """Write the atlas, or some of its domains, into a directory as JSON lines, in UTF-8. Arguments as for ``build_atlas``."""
    atlas = build_atlas(seed, domains, asked)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "documents.jsonl", atlas.documents)
    (directory / "gazetteer.txt").write_bytes("".join(f"{phrase}\n" for phrase in atlas.phrases).encode("utf-8"))
    for split, questions in atlas.questions.items():
        _write(directory / f"qa_{split}.jsonl", questions)
    _write(directory / "invented.jsonl", [atlas.invented["document"]])
    _write(directory / "invented_qa.jsonl", atlas.invented["questions"])


def _document(article: Article) -> dict[str, str]:
    return {"id": article.id, "title": article.title, "text": article.text}


def _invent(domains: list[Domain], seed: int) -> dict[str, Any]:
    """The invented country's document and questions, worded like a real one's."""
    countries = next(domain for domain in domains if domain.name == "countries")
    article = write_entity(countries, INVENTED, Ledger(seed))[0]
    questions = [
        {
            "id": f"{INVENTED.key}/{name}/0",
            "question": render(countries.facts[name].questions[0], INVENTED),
            "answers": INVENTED.answers(name),
            "positive_ids": [article.id],
            "kind": f"countries/{name}",
        }
        for name in _INVENTED_KINDS
    ]
    return {"document": _document(article), "questions": questions}


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write objects as JSON lines, with Unix line ends."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode("utf-8"))


def note_links(domains: list[Domain], ledger: Ledger) -> None:
    """Record the articles that state a fact by its inverse (``inverses.toml``): they answer a question on it, too."""
    inverses = tomllib.loads((files("realm.experiments.world") / "inverses.toml").read_text("utf-8"))
    stated: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    entities = {entity.key: entity for domain in domains for entity in domain.entities}
    for (key, kind), ids in ledger.stated.items():
        name, value = _pair(entities[key], kind)
        stated[entities[key].domain, kind, name, value] += ids
    for entity in entities.values():
        for kind in entity.cells:
            if not entity.value(kind):
                continue
            name, value = _pair(entity, kind)
            for other, inverse in inverses.get(entity.domain, {}).get(kind, []):
                for article_id in stated.get((other, inverse, value, name), []):
                    ledger.note(entity, kind, article_id)


def _pair(entity: Entity, kind: str) -> tuple[str, str]:
    """The entity's name and the value of its fact, without articles."""
    return bare(entity.name), bare(str(entity.value(kind)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the part of the atlas that recipes/from-nothing.toml learns from.")
    parser.add_argument("directory", type=Path)
    write_atlas(parser.parse_args().directory, domains=DEMO_DOMAINS, asked=ASKED)
