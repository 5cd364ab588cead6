"""Has the reader learnt to read? What it answers to questions made, by template, of sentences that it has never been trained on.

They are asked of the whole corpus, as a person would ask them, and their sentence is among what may be read: so they are easier than
people's own questions, and a reader that fails at them has learnt too little to be asked at all.
"""

from realm.answerer import Answerer
from realm.data.loader import generator
from realm.data.masked_text import masked_text
from realm.data.statements import Statements
from realm.data.types import MaskedQuery, Question
from realm.recipes.context import source_over
from realm.recipes.pretrain.view import PretrainView
from realm.recipes.scoring import exact_match_share
from realm.train.distributed import on_first

ASKED = 50


def own_questions(statements: Statements, queries: list[MaskedQuery], seed: int) -> list[Question]:
    """A question with its answer for each of the first ``ASKED`` masked sentences that a template makes a question of.

    Args:
        statements: makes the questions.
        queries: sentences of the knowledge corpus with one hidden span each.
        seed: of the question words.
    """
    found: list[Question] = []
    for query in queries:
        text = statements.in_words(query, generator("own questions", seed, len(found)))
        if text is not None:
            found.append(Question(str(len(found)), text, masked_text(statements.store, query)[1]))
        if len(found) == ASKED:
            break
    return found


def own_em(view: PretrainView, questions: list[Question], read: int) -> float:
    """Exact match on such questions with the networks as they are now, ``read`` blocks read for each."""

    def measure() -> float:
        source = source_over(view.context, view.generation.queries, view.generation)
        answerer = Answerer(view.inputs, source, view.model.reader, versions={}, bf16=view.context.recipe.run.bf16)
        return exact_match_share(answerer.answer([question.text for question in questions], k=read), questions)

    return on_first(measure)
