"""The verbs about questions: eval, data check, data convert."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from realm.cli import show
from realm.cli.arguments import Columns, Json, Place, Run, Word, columns
from realm.progress import Progress

if TYPE_CHECKING:
    from realm.evaluation.questions.rows import QuestionOptions

Qa = Annotated[Path, tyro.conf.arg(metavar="QA")]
Sources = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="QA")]


@dataclass(frozen=True)
class QuestionFlags:
    """Options of the readers of question files.

    Args:
        format: jsonl, json, csv, tsv, nq-open, natural-questions, webquestions, curatedtrec, triviaqa, squad or dpr; detected if not given.
        column: column or key of a role: question (if not given: question), answers (answers or answer) or id (id, else questions are
            numbered), such as --column question=text; may be repeated.
        separator: what separates the answers in a cell of a table; if not given, a cell is one answer, or a list in brackets."""

    format: Word = ""
    column: Columns = ()
    separator: Word = ""

    def options(self) -> "QuestionOptions":
        """Options of the readers."""
        from realm.evaluation.questions.rows import QuestionOptions

        named = columns(self.column, "question", "answers", "id")
        question, answers, id = (named.get(role, "") for role in ("question", "answers", "id"))
        return QuestionOptions(self.format, question, answers, id, self.separator)


Reading = Annotated[QuestionFlags, tyro.conf.arg(name="")]


def data_check(qa: Qa, /, *, corpus: Place = None, reading: Reading = QuestionFlags(), json: Json = False) -> None:
    """Check a question file: counts, answer lengths, and with a corpus how many answers occur in it.

    Args:
        qa: questions, in any known format.
        corpus: a corpus directory."""
    from realm.evaluation.check import check_question_file

    with Progress() as progress:
        found = check_question_file(qa, corpus, options=reading.options(), counting=progress.count)
    show.result(found, json)


def data_convert(sources: Sources, /, *, out: Path, dev: Place = None, reading: Reading = QuestionFlags(), json: Json = False) -> None:
    """Write question files of any format as JSON lines; optionally split off the papers' development questions.

    Args:
        sources: files of questions.
        out: the file to write.
        dev: a file for the tenth of the questions that ORQA and REALM develop on; the others go to out."""
    from realm.evaluation.questions.loading import convert_questions

    show.result(convert_questions(sources, out, dev=dev, options=reading.options()), json)


def eval(
    run: Run,
    /,
    *,
    qa: tuple[Path, ...],
    k: tuple[int, ...] = (),
    read: int = 0,
    abstain_below: float = 0.0,
    predictions: Place = None,
    trec: Place = None,
    reading: Reading = QuestionFlags(),
    json: Json = False,
) -> None:
    """Measure exact match, F1 and recall of a run on questions; without a reader, recall only.

    Args:
        qa: files of questions, and folders with queries and judgements such as BEIR's; one or more.
        k: depths of recall; if not given, as in the recipe.
        read: blocks that are read for an answer; 0: as in the recipe.
        abstain_below: count answers whose confidence (p, where none was calibrated) is below this as not given; between 0 and 1.
        predictions: a file for every answer, as JSON lines.
        trec: a directory for rankings and judgements in TREC's formats."""
    from realm.runs.evaluation import Wanted, evaluate_run

    wanted = Wanted(qa, reading.options(), k, read, abstain_below, predictions, trec)
    with Progress() as progress:
        result = evaluate_run(run, wanted, progress)
    show.result(result, json, show.evaluation)
