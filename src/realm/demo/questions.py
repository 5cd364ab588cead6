"""Make the atlas's questions and split them by entity and by answer."""

from collections import Counter
from typing import Any

from realm.demo.articles import Ledger
from realm.demo.tables import Domain, Entity, normalise_answer, rank, render, shuffled

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
        where = assign_entities(domain, ledger.seed)
        for entity in domain.entities:
            split = where[entity.key]
            splits[split] += _ask_entity(domain, entity, split, ledger)
    return separate_answers(splits)


def assign_entities(domain: Domain, seed: int) -> dict[str, str]:
    """Deal a domain's entities out to the splits."""
    keys = sorted((e.key for e in domain.entities), key=lambda key: rank(seed, "split", key))
    tests = round(len(keys) * _TEST_SHARE)
    devs = round(len(keys) * _DEV_SHARE)
    return {key: "test" if i < tests else "dev" if i < tests + devs else "train" for i, key in enumerate(keys)}


def _ask_entity(domain: Domain, entity: Entity, split: str, ledger: Ledger) -> list[Question]:
    """Questions on the facts of one entity."""
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

    An answer of only one or two facts of train is given to dev and test;
    questions with a commoner answer are kept in train only.
    """
    facts = {q["id"].rpartition("/")[0]: _normal(q) for q in splits["train"]}
    common = Counter(answer for answers in facts.values() for answer in answers)
    held = {split: [q for q in splits[split] if all(common[a] <= _RARE for a in _normal(q))] for split in ("dev", "test")}
    taken = {answer for questions in held.values() for q in questions for answer in _normal(q)}
    train = [q for q in splits["train"] if not taken & _normal(q)]
    return {"train": train, **held}


def _normal(question: Question) -> set[str]:
    """The normalised answers of a question."""
    return {normalise_answer(answer) for answer in question["answers"]}
