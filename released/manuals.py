"""Questions about manuals, made by rule from their own sentences: a reader that has read only encyclopaedias does not know their kinds.

    realm corpus build MANUALS... --out CORPUS --tokenizer MODEL --block-length 160 --tagger none
    python released/manuals.py CORPUS DATA --out fourth.jsonl --among runs/reader-data/third.jsonl

"To mute a track, press M." becomes "How do I mute a track?", "-v, --verbose  Print each name." becomes "What does --verbose do?" and
"Which option prints each name?", "If the disk is full, the backup stops." becomes "What happens if the disk is full?". Each is written with
its block as paragraph; some of its words change to others of the same meaning, some are asked of another block that does not answer. What
shares eight words in a row with a test, or stands in the folders of DATA, is left out. The last line is one JSON object.
"""

import argparse
import json
import random
import re
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prepare import KEPT, Tests, misleading, sequences  # beside this file

from realm.documents.store.blocks import BlockStore
from realm.evaluation.questions.loading import load_questions, write_questions
from realm.models.types import Question

SEED, MOST, OF_A_KIND, MISLED, MAX_WORDS, MOST_ASKED = 17, 24_000, 4500, 0.3, 26, 24
AMONG = 17_000, 6000
"""Questions with an answer, and without one, that are mixed in: a reader forgets what it no longer reads."""
TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
ALIKE = [tuple(word.replace("_", " ") for word in pair.split()) for pair in TABLE["alike"].replace("\n", "").split("|")]
SUBJECT = r"(?:The |A |An |This |You |It |These )?(?!Also|There|That|It)[^,;:()]{2,45}?"
REASON = re.compile(rf"({SUBJECT}) ({TABLE['auxiliary']}) ([^,;:()]{{3,70}}?),? because (.{{8,150}}?)\.")
DASHED = r"-{1,2}[\w?][\w-]*(?:[ =]\[?<?[\w.-]+>?\]?)?(?:, ?-{1,2}[\w-]+(?:[ =]\[?<?[\w.-]+>?\]?)?)*"
BARE = r"[a-z][\w.-]*[\w](?:=[\w<>-]+)?"
DESCRIBED = r"(?::[ \t\n]+|\s*\n\s*|[ \t]{2,})([A-Z][^\n]*(?:\n(?!\s*-)[ \t]*\S[^\n]*){0,3})"
OPTION = re.compile(rf"(?:^|\n)[ \t]*((?:{DASHED})|(?:{BARE})){DESCRIBED}")
TITLED = re.compile(r"(?:^|\n)[ \t]*([\w.+-]{2,30}) [-–—] ([a-z][^\n]{8,120})")
NAME = re.compile(r"(?<![\w-])-{1,2}[\w?][\w-]*")
KINDS = {
    "dashed": ["option", "option", "flag", "switch"],
    "titled": ["command", "tool", "program"],
    "bare": ["setting", "keyword", "variable", "parameter", "option"],
}
FOR_WHAT = ["What does {name} do?", "What does the {name} {kind} do?", "what is {name} for", "What is {name}?"]
BY_WHAT = [
    "Which {kind} {does}?",
    "Which {kind} makes it {phrase}?",
    "What {kind} do I use to {phrase}?",
    "How do I {phrase}?",
    "Which {kind} is there to {phrase}?",
]
NO_TERM = {"note", "warning", "example", "examples", "see", "tip", "usage", "name", "the", "and", "or", "to", "of", "in", "is", "a"}
NO_ANSWER = re.compile(r"(?:[Tt]his|[Ii]t|or|and|but|that)\b")
NO_TEXT = re.compile(r"[\u2010>\x08]|(.)\1(.)\2(.)\3| (?:I|you) be |to be able")
"""Words cut by a line end, letters struck over, and questions that are no English."""
Places = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sentence:
    """A sentence with single spaces, and the place of each of its characters in the block."""

    text: str
    places: list[int]


@dataclass(frozen=True)
class Rule:
    """A pattern of sentences, the group that is the answer, and the questions that it answers."""

    kind: str
    pattern: re.Pattern[str]
    answer: int
    asks: list[str]

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Rule":
        pattern = row["pattern"].replace("\n", "").replace("DOES", TABLE["does"].replace("\n", ""))
        whole = row.get("found") != "anywhere"
        return cls(row["kind"], re.compile(rf"\A(?:{pattern})\Z" if whole else pattern), row["answer"], row["asks"])

    def apply(self, text: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
        """The kind, a question and its answer, where a sentence is of this form."""
        if not (found := self.pattern.search(text)):
            return
        fields = dict[str, str]()
        for at, group in enumerate(found.groups(), 1):
            said = group or ""
            mine = re.sub(r"\byour\b", "my", re.sub(r"\byou\b", "I", re.sub(r"\byou are\b", "I am", said)))
            fields |= {f"g{at}": said, f"l{at}": said[:1].lower() + said[1:], f"m{at}": mine}
        yield self.kind, rng.choice(self.asks).format(**fields), found[self.answer]


RULES = [Rule.of(row) for row in TABLE["rules"]]


def reasons(text: str) -> Iterator[tuple[str, str, str]]:
    """A question for the reason of a sentence that gives one: its verb before its subject."""
    if not (found := REASON.fullmatch(text)):
        return
    subject, verb, rest, reason = found.groups()
    if re.match(r"(?:The|A|An|This|You|It|These)\b", subject):
        subject = subject[0].lower() + subject[1:]
    if verb.endswith("not"):
        verb, rest = verb.removesuffix("not").strip(), f"not {rest}"
    if subject not in {"it", "this", "these"}:
        yield "reason", f"Why {verb} {subject} {rest}?", reason


def third_person(verb: str) -> str:
    """Return the form after "it"."""
    if re.search(r"(?:s|x|z|ch|sh|o)$", verb):
        return verb + "es"
    return re.sub(r"([^aeiou])y$", r"\1ie", verb) + "s"


def option_rows(text: str, verbs: set[str], rng: random.Random) -> Iterator[tuple[str, str, Places]]:
    """Questions for the terms that a block lists: each with its kind and the ranges of its answers."""
    for found in (*OPTION.finditer(text), *TITLED.finditer(text)):
        first = re.match(r".{8,170}?(?=[.;](?:\s|$)|$)", " ".join(found[2].split()))
        if not first or found[1] in NO_TERM:
            continue
        dashed, titled = found[1].startswith("-"), found.re is TITLED
        named = [name.span() for name in NAME.finditer(text, *found.span(1))] if dashed else [found.span(1)]
        start, end = rng.choice(named)
        kinds = KINDS["dashed" if dashed else "titled" if titled else "bare"]
        place = re.compile(r"\s+".join(re.escape(word) for word in first[0].split())).search(text, found.start(2))
        if place:
            yield "does", rng.choice(FOR_WHAT).format(name=text[start:end], kind=kinds[0]), (place.span(),)
        verb, _, rest = first[0].partition(" ")
        base = next((form for form in (verb.lower(), verb.lower().removesuffix("s"), verb.lower().removesuffix("es")) if form in verbs), "")
        if base and len(rest.split()) >= 2 and not re.search(r"[\[\]{}<>|]", rest):
            words = {"kind": rng.choice(kinds), "phrase": f"{base} {rest}", "does": f"{third_person(base)} {rest}"}
            yield "option", rng.choice(BY_WHAT).format(**words), (found.span(1), *named)


def verbs_of(store: BlockStore) -> set[str]:
    """Words that often follow "to", and seldom an article."""
    after = Counter[str]()
    nouns = Counter[str]()
    for row in range(len(store)):
        text = store.block(row).text
        after.update(re.findall(r"\b[Tt]o ([a-z]{2,})\b", text))
        nouns.update(re.findall(r"\b(?:the|a|an|your|this) ([a-z]{2,})\b", text))
    return {word for word, count in after.items() if count >= 8 and count > nouns[word] / 2} - {"be", "the", "have"}


def sentences_of(store: BlockStore, row: int, text: str) -> Iterator[Sentence]:
    """The sentences of a block, without what breaks their lines."""
    for start, end in store.sentences(row).chars.tolist():
        words = [*re.finditer(r"\S+", text[start:end])]
        folded, places = "", list[int]()
        for word in words:
            if folded:
                folded, places = folded + " ", [*places, start + word.start() - 1]
            folded, places = folded + word[0], [*places, *range(start + word.start(), start + word.end())]
        yield Sentence(folded, places)


def block_questions(store: BlockStore, row: int, verbs: set[str], rng: random.Random) -> Iterator[tuple[str, Question]]:
    """All questions that the rules make of one block, with their kinds."""
    block = store.block(row)
    found = list(option_rows(block.text, verbs, rng))
    for sentence in sentences_of(store, row, block.text):
        made = [one for rule in RULES for one in rule.apply(sentence.text, rng)]
        for kind, question, answer in (*made, *reasons(sentence.text)):
            at = sentence.text.rfind(answer)
            found.append((kind, question, ((sentence.places[at], sentence.places[at + len(answer) - 1] + 1),)))
    for number, (kind, question, places) in enumerate(found):
        answers = tuple(dict.fromkeys(block.text[start:end] for start, end in places))
        if NO_TEXT.search(question + answers[0]) or NO_ANSWER.match(answers[0]) or len(question.split()) > MOST_ASKED:
            continue
        if max(len(answer.split()) for answer in answers) <= MAX_WORDS and question.count("(") == question.count(")"):
            text = reworded(question[0].upper() + question[1:] if rng.random() < 0.9 else question, rng)
            yield kind, Question(f"manuals:{row}-{number}", text, answers, (), "string", block.text, block.full_title, places)


def reworded(question: str, rng: random.Random) -> str:
    """The question with some of its words exchanged for others of the same meaning."""
    for pair in ALIKE:
        for old, new in (pair, pair[::-1]):
            if rng.random() < 0.5 and re.search(rf"\b{old}\b", question):
                question = re.sub(rf"\b{old}\b", new, question, count=1)
                break
    return question


def folders_of(data: Path) -> set[str]:
    """Sequences of words of the folders that are tested on."""
    marks = set[str]()
    for packed in sorted((data / "folders").glob("*.tar.xz")):
        with tarfile.open(packed) as files:
            for member in files:
                content = files.extractfile(member) if member.isfile() else None
                if content and Path(member.name).suffix.lower() in {"", ".txt", ".md", ".html", ".htm", ".rst", ".log"}:
                    marks |= sequences(re.sub(r"<[^>]+>", " ", content.read().decode("utf-8", "replace")))
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--among", type=Path, help="questions of which some are mixed in, as prepare.py writes them")
    arguments = parser.parse_args()
    rng, store, tests, tested = random.Random(SEED), BlockStore.open(arguments.corpus), Tests(arguments.data), folders_of(arguments.data)
    verbs = verbs_of(store)
    left_out, groups, titles = Counter[str](), dict[str, list[Question]](), dict[str, str]()
    for row in range(len(store)):
        text = store.block(row).text
        own = sequences(text)
        if len(own & tested) > 0.1 * len(own):
            left_out["block of a folder"] += 1
            continue
        titles[text] = store.block(row).full_title
        for kind, question in block_questions(store, row, verbs, rng):
            if reason := tests.reason(question):
                left_out[reason] += 1
            else:
                groups.setdefault(kind, []).append(question)
    chosen = list[Question]()
    for kind, group in groups.items():
        distinct = list({question.text.lower(): question for question in group}.values())
        rng.shuffle(distinct)
        groups[kind] = distinct
        chosen += distinct[:OF_A_KIND]
    rng.shuffle(chosen)
    chosen = chosen[:MOST]
    chosen += misleading(chosen[: int(MISLED * len(chosen))], titles, rng)
    rng.shuffle(chosen)
    if arguments.among:
        others = load_questions(arguments.among, KEPT)
        rng.shuffle(others)
        for kind, most in zip((True, False), AMONG, strict=True):
            chosen += [question for question in others if bool(question.answers) == kind][:most]
        rng.shuffle(chosen)
    write_questions(arguments.out, chosen)
    counts = {kind: len(group) for kind, group in groups.items()}
    print(json.dumps({"blocks": len(store), "kinds": counts, "left_out": dict(left_out), "written": len(chosen)}))


if __name__ == "__main__":
    main()
