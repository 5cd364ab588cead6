"""Fine-tuning of the reader alone on questions that bring their paragraph, cut into windows, without search.

Of most long paragraphs one window of a block's length is cut, around an answer or, at times, elsewhere; others are read whole. Batches hold
windows of similar length. A window's loss is -log of the mass of its answers among its spans and "not here"; a window without
an answer raises "not here"."""

from collections.abc import Iterator, Sequence as SequenceOf
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from realm.answering.questions.templates import everyday
from realm.errors import DataError
from realm.evaluation.questions.loading import load_datasets, pooled
from realm.evaluation.questions.rows import QuestionOptions
from realm.models import losses
from realm.models.featurize import Featurizer
from realm.models.model import RealmModel
from realm.models.reader import Reader, SpanScores
from realm.models.types import Question, Sequence
from realm.recipe.seeds import generator
from realm.text.matching.answers import exact_match, f1, normalised_ranges, normalize_answer, raw_ranges
from realm.text.tokenizer import TextTokenizer
from realm.text.wordpieces import MAX_TITLE_LENGTH
from realm.training.context import StageContext, train
from realm.training.finetune.task import DEV_QUESTIONS, files_of, in_turn
from realm.training.finetune.training import EXACT_MATCH, take_best
from realm.training.loop.checkpoint import better_of
from realm.training.loop.distributed import on_first
from realm.training.loop.task import Measured, Metrics, StepResult, Task
from realm.training.order import WHOLE, LengthOrder, Share

CROP = 96
"""Wordpieces of a window of a longer paragraph: as many as a block has, so that more questions are read in the same time."""
WHOLE_SHARE = 0.25
"""Share of the longer paragraphs that are read whole."""
ELSEWHERE = 0.15
"""Share of the cropped windows that lie anywhere: most hold no answer, and teach "not here"."""
OVERLAP = 4
"""Windows of a long paragraph share a quarter of their wordpieces, so that no answer is cut by all of them."""


@dataclass(frozen=True)
class Window:
    """A question beside wordpieces [first, last) of its paragraph.

    ``gold``: int32 [n, 2], wordpieces [start, end) of the window that are an answer; none where it does not answer."""

    question: int
    first: int
    last: int
    gold: np.ndarray

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Paragraph:
    """Wordpieces of a text, int32 [t], and the code points [start, end) of each, int32 [t, 2]."""

    ids: np.ndarray
    offsets: np.ndarray

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The wordpieces [first, last) that touch code points [start, end)."""
        first = int(np.searchsorted(self.offsets[:, 1], start, side="right"))
        return first, int(np.searchsorted(self.offsets[:, 0], end, side="left"))


class GivenParagraphs:
    """Windows of all paragraphs that some questions bring; ``max_span``: longest answer in wordpieces."""

    def __init__(self, questions: SequenceOf[Question], tokenizer: TextTokenizer, features: Featurizer, max_span: int):
        self.questions = questions
        self.features = features
        self.tokenizer = tokenizer
        self._max_span = max_span
        self._texts = list(dict.fromkeys(question.context for question in questions))
        self._number = {text: number for number, text in enumerate(self._texts)}
        made = tokenizer.tokenize(self._texts)
        ids, borders = made.ids.astype(np.int32), enumerate(pairwise(made.starts.tolist()))
        self._paragraphs = [Paragraph(ids[a:b], np.array(made.offsets(i), np.int32).reshape(-1, 2)) for i, (a, b) in borders]
        titles = list(dict.fromkeys(question.title for question in questions))
        self._titles = {title: ids[:MAX_TITLE_LENGTH] for title, ids in zip(titles, tokenizer.encode(titles), strict=True)}

    @cached_property
    def windows(self) -> list[Window]:
        """The windows of each question that can be learnt from: an answer in its paragraph can be pointed at, or it has none there."""
        return [window for number, question in enumerate(self.questions) for window in self._learnable(number, question)]

    def windows_of(self, number: int) -> list[Window]:
        """The windows of one question's paragraph, in order."""
        paragraph, spans = self.paragraph(number), self._answer_spans(number)
        room = self.features.block_length - 3 - len(self.title(number))
        return [Window(number, first, last, self._inside(spans, first, last)) for first, last in _cuts(len(paragraph.ids), room)]

    def paragraph(self, number: int) -> Paragraph:
        return self._paragraphs[self._number[self.questions[number].context]]

    def title(self, number: int) -> list[int]:
        """Wordpieces of the title of a question's paragraph, as many as a reader reads."""
        return self._titles[self.questions[number].title]

    def _learnable(self, number: int, question: Question) -> list[Window]:
        rng = generator("cropped", number)
        if len(self.paragraph(number).ids) > CROP and rng.random() >= WHOLE_SHARE:
            return self._cropped(number, rng)
        windows = self.windows_of(number)
        return windows if not question.answers or any(len(window.gold) for window in windows) else []

    def _cropped(self, number: int, rng: np.random.Generator) -> list[Window]:
        """One window of ``CROP`` wordpieces with an answer at a random place, or one from anywhere; none if no answer can be pointed at."""
        length = len(self.paragraph(number).ids)
        spans = [(start, end) for start, end in self._answer_spans(number) if start < end <= start + self._max_span]
        if self.questions[number].answers and not spans:
            return []
        if not spans or rng.random() < ELSEWHERE:
            first = int(rng.integers(0, length - CROP + 1))
        else:
            start, end = spans[int(rng.integers(len(spans)))]
            low, high = max(0, end - CROP), min(start, length - CROP)
            first = int(rng.integers(low, max(low, high) + 1))
        return [Window(number, first, first + CROP, self._inside(spans, first, first + CROP))]

    def _answer_spans(self, number: int) -> list[tuple[int, int]]:
        """Wordpieces [start, end) of a question's paragraph that are an answer."""
        return [self.paragraph(number).span(start, end) for start, end in answer_places(self.questions[number])]

    def _inside(self, spans: list[tuple[int, int]], first: int, last: int) -> np.ndarray:
        inside = {(s - first, e - first) for s, e in spans if first <= s < e <= last and e - s <= self._max_span}
        return np.array(sorted(inside), np.int32).reshape(-1, 2)


def answer_places(question: Question) -> list[tuple[int, int]]:
    """(start, end) code points of a question's answers in its paragraph: where they were marked, or wherever their words occur."""
    if question.places:
        return list(question.places)
    return normalised_ranges(question.context, question.answers) or raw_ranges(question.context, question.answers)


def _cuts(length: int, room: int) -> Iterator[tuple[int, int]]:
    """[first, last) of windows of at most ``room`` wordpieces over ``length``, each a quarter into the one before."""
    step = max(1, room - room // OVERLAP)
    for first in range(0, max(1, length - room // OVERLAP), step):
        yield first, min(length, first + room)


UNTITLED = 0.25
"""Share of the windows that are read without their title: not every document has one."""
BEST = 20
"""Spans of a paragraph whose strings are compared."""
READ_AT_A_TIME = 16
"""Questions whose paragraphs are read together in evaluation."""
GIVEN = QuestionOptions(unanswerable=True)


class GivenTask(Task):
    """Training of a reader by questions with their paragraphs. Raises DataError: no question brings a paragraph with its answer."""

    name = "finetune"

    def __init__(self, context: StageContext, reader: Reader, questions: list[Question], dev: list[Question]):
        self.context, self.reader = context, reader
        self.section = context.recipe.finetune
        self.model = nn.ModuleDict({"reader": reader})
        self.given = self._paragraphs(questions)
        self.windows = self.given.windows
        self.learnt_from = len({window.question for window in self.windows})
        if not self.windows:
            cure = "Give each question its paragraph under 'context', and answers that stand in it; docs/data-formats.md shows the form."
            raise DataError("no question has a paragraph that holds its answer", path=files_of(context.recipe.train_files), cure=cure)
        self.dev = dev[:DEV_QUESTIONS]
        lengths = [len(window) for window in self.windows]
        self.order = LengthOrder(lengths, self.section.batch, self.name, context.seed)
        self.best_by = "dev_em" if self.section.publish == "best" else ""

    def _paragraphs(self, questions: SequenceOf[Question]) -> GivenParagraphs:
        return GivenParagraphs(questions, self.context.store.tokenizer, self.context.inputs.featurizer, self.reader.max_span)

    def step(self, step: int, share: Share = WHOLE) -> StepResult:
        """-log of the mass on each window's answers, or on "not here" where it has none, averaged over windows."""
        drawn = self.order.batch(step, self.section.batch, share)
        windows = [self.windows[item] for _, item in drawn]
        sequences, starts = joint_inputs(self.given, windows, self._asked(drawn), titles=self._titles(drawn))
        scores = self.reader(sequences, starts)
        gold = gold_spans(windows, scores)
        loss, valid = posterior_nll(scores, gold)
        metrics: Measured = {"reader_loss": loss.detach().mean(), "answered": gold.flatten(1).any(1).float().mean()}
        return StepResult(loss.sum(), valid.sum(), metrics, len(windows))

    def _asked(self, drawn: list[tuple[int, int]]) -> list[list[int]]:
        """Wordpieces of the questions of drawn windows, some of them in an everyday form."""
        texts = []
        for position, item in drawn:
            rng = generator("everyday", self.name, self.context.seed, position)
            texts.append(everyday(self.given.questions[self.windows[item].question].text, rng))
        return self.context.store.tokenizer.encode(texts)

    def _titles(self, drawn: list[tuple[int, int]]) -> list[bool]:
        return [generator("titled", self.name, self.context.seed, position).random() >= UNTITLED for position, _ in drawn]

    def between(self, step: int) -> Metrics | None:
        if not self.dev or step == 0 or (step % self.section.eval_every and step != self.section.steps):
            return None
        return {"dev_em": self.dev_em()}

    def dev_em(self) -> float:
        """Exact match on the dev questions, as the reader is now; "not here" is right where the paragraph has no answer."""
        return on_first(lambda: given_scores(self.read(self.dev), self.dev)["em"])

    def read(self, questions: list[Question]) -> list["GivenAnswer"]:
        """Answer questions beside their paragraphs."""
        return read_given(self.reader, self._paragraphs(questions))


def joint_inputs(
    given: GivenParagraphs, windows: SequenceOf[Window], asked: SequenceOf[SequenceOf[int]], titles: SequenceOf[bool] | None = None
) -> tuple[list[Sequence], list[int]]:
    """The reader's inputs of windows with their questions, and the start of each body; ``titles``: which are read with their title."""
    placed = []
    for number, (window, question) in enumerate(zip(windows, asked, strict=True)):
        title = given.title(window.question) if titles is None or titles[number] else []
        body = given.paragraph(window.question).ids[window.first : window.last].tolist()
        placed.append(given.features.titled(given.features.with_mask(question), title, body))
    return [sequence for sequence, _ in placed], [start for _, start in placed]


def gold_spans(windows: SequenceOf[Window], scores: SpanScores) -> Tensor:
    """Places of the answers of n windows, bool [n, t, w]."""
    gold = torch.zeros(scores.valid.shape, dtype=torch.bool)
    for number, window in enumerate(windows):
        start, end = torch.from_numpy(window.gold).long().unbind(1)
        gold[number, start, end - start - 1] = True
    return gold.to(scores.valid.device) & scores.valid


def posterior_nll(scores: SpanScores, gold: Tensor) -> losses.Loss:
    """-log of what the gold spans have of the mass of all spans and "not here", [n]; "not here" itself is right where nothing is gold."""
    none = ~gold.flatten(1).any(1, keepdim=True)
    logits = torch.cat([scores.logits.flatten(1), scores.not_here.unsqueeze(1)], 1)
    valid = torch.cat([scores.valid.flatten(1), torch.ones_like(none)], 1)
    return losses.span_marginal(logits, torch.cat([gold.flatten(1), none], 1), valid)


@dataclass(frozen=True)
class GivenAnswer:
    """The likeliest string of a paragraph, its probability, and that of "not here" in all of its windows."""

    text: str
    p: float
    not_here: float


@torch.inference_mode()
def read_given(reader: Reader, given: GivenParagraphs) -> list[GivenAnswer]:
    """Read each question's whole paragraph: its windows share the probability, and equal strings add theirs."""
    training = reader.training
    reader.eval()
    answers: list[GivenAnswer] = []
    tokens = given.tokenizer.encode([question.text for question in given.questions])
    for begin in range(0, len(given.questions), READ_AT_A_TIME):
        numbers = range(begin, min(begin + READ_AT_A_TIME, len(given.questions)))
        windows = [window for number in numbers for window in given.windows_of(number)]
        sequences, starts = joint_inputs(given, windows, [tokens[window.question] for window in windows])
        scores = reader(sequences, starts)
        for number in numbers:
            own = [place for place, window in enumerate(windows) if window.question == number]
            answers.append(_best_string(given, [windows[place] for place in own], scores, own))
    reader.train(training)
    return answers


def _best_string(given: GivenParagraphs, windows: list[Window], scores: SpanScores, own: list[int]) -> GivenAnswer:
    """The best string over the windows of one paragraph, ``own`` rows of the scores."""
    logits = scores.logits[own].masked_fill(~scores.valid[own], float("-inf"))
    # A window's spans share its mass with "not here". No window has an answer: the product. The rest is divided among all spans.
    here = torch.cat([logits.flatten(1), scores.not_here[own].unsqueeze(1)], 1).log_softmax(1)
    nowhere = float(here[:, -1].sum().exp())
    spans = here[:, :-1]
    share = (1.0 - nowhere) / max(1e-12, float(spans.exp().sum()))
    values, places = spans.flatten().topk(min(BEST, spans.numel()))
    mass: dict[str, float] = {}
    spelling: dict[str, str] = {}
    question = given.questions[windows[0].question]
    offsets = given.paragraph(windows[0].question).offsets
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        window, start, width = np.unravel_index(place, logits.shape)
        if value == float("-inf"):
            break
        first = windows[window].first + int(start)
        text = question.context[offsets[first, 0] : offsets[first + int(width), 1]]
        key = normalize_answer(text) or text
        mass[key] = mass.get(key, 0.0) + float(np.exp(value))
        spelling.setdefault(key, text)
    best = max(mass, key=lambda key: mass[key], default="")
    return GivenAnswer(spelling.get(best, ""), min(1.0, mass.get(best, 0.0) * share), nowhere)


def given_scores(answers: SequenceOf[GivenAnswer], questions: SequenceOf[Question]) -> dict[str, float]:
    """Exact match and F1, of SQuAD 2.0's kind: where a paragraph has no answer, abstaining is right (where "not here" is likelier)."""
    em, overlap = [], []
    may_abstain = any(not question.answers for question in questions)
    for answer, question in zip(answers, questions, strict=True):
        said = "" if answer.not_here > answer.p and may_abstain else answer.text
        em.append(float(exact_match(said, question.answers) if question.answers else not said))
        overlap.append(f1(said, question.answers) if question.answers else float(not said))
    return {"em": float(np.mean(em)), "f1": float(np.mean(overlap))}


def given_questions(context: StageContext) -> tuple[list[Question], list[Question]]:
    """Questions to learn from and to watch, with their paragraphs, as the recipe names them."""
    recipe = context.recipe
    dev = in_turn(load_datasets(recipe.dev_files, GIVEN)) if recipe.dev_files else []
    return pooled(load_datasets(recipe.train_files, GIVEN)), [question for question in dev if question.context]


def finetune_given(context: StageContext, model: RealmModel, mark: str) -> dict[str, Any]:
    """Train the model's reader on given paragraphs, and leave it with the weights that the recipe publishes. Returns facts."""
    task = GivenTask(context, model.reader, *given_questions(context))
    left_out = len(task.given.questions) - task.learnt_from
    if left_out:
        context.say(f"finetune: {left_out:,} of {len(task.given.questions):,} questions bring no paragraph that holds their answer")
    start = (
        {name: value.clone() for name, value in model.reader.state_dict().items()} if context.recipe.finetune.publish == "better" else {}
    )
    steps = train(context, task, context.recipe.finetune, mark)
    facts: dict[str, Any] = {"steps": steps, "questions": task.learnt_from, "windows": len(task.windows), **take_best(context, task)}
    if start and task.dev:
        facts["gate"] = {"reader": better_of(model.reader, start, EXACT_MATCH, task.dev_em).facts()}
    return facts
