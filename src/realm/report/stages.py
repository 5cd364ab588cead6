"""One section a stage: its curves, grouped by what they tell, and the numbers behind them as a table."""

from realm.report.chart import Series, line_chart, short
from realm.report.markup import Html, join, table, tag
from realm.report.pictures import Picture, ordered_columns, pictures
from realm.report.read import RunRecord, StageRecord
from realm.report.shares import time_shares

ABOUT = {
    "ict": ("Inverse cloze task", "The embedder learns to find the block that a sentence was taken from: a first retriever."),
    "warm": ("Reading warm start", "The encoder learns to fill a masked span by reading it off a block that holds it."),
    "pretrain": ("REALM pre-training", "Retriever and encoder learn together: a document that helps to fill a mask is rewarded."),
    "finetune": ("Fine-tuning", "Retriever and reader learn from questions and answers; documents keep their embeddings."),
    "closed_book": ("Closed book", "The encoder alone learns to answer: what can be remembered without documents."),
    "bm25": ("BM25 + reader", "The same reader on the candidates of BM25."),
    "tfidf": ("TF-IDF + reader", "The same reader on the candidates of TF-IDF."),
    "fused": ("REALM + BM25, fused", "The same reader on the candidates of both, fused by reciprocal rank."),
    "orqa": ("ORQA", "The retriever of ICT alone, with a reader whose encoder was trained on without retrieval."),
}
MOST_ROWS = 60


def stages_section(run: RunRecord) -> Html | None:
    """All stages that left numbers or facts."""
    shown = [_stage(stage) for stage in run.stages if stage.columns or stage.facts]
    return tag("section", tag("h2", "Training"), *shown) if shown else None


def _stage(stage: StageRecord) -> Html:
    title, about = ABOUT.get(stage.name, (stage.name, None))
    drawn = pictures(stage)
    telling = [_figure(stage, picture) for picture in drawn if not picture.machinery]
    machinery = [_figure(stage, picture) for picture in drawn if picture.machinery]
    parts = [
        tag("h3", title),
        tag("p", about, class_="about") if about else None,
        _outcome(stage),
        tag("div", *telling, class_="charts") if telling else None,
        time_shares(stage),
        tag("details", tag("summary", "Learning rate, gradients and other machinery"), tag("div", *machinery, class_="charts"))
        if machinery
        else None,
        _numbers(stage) if drawn else None,
    ]
    return tag("article", *parts)


def _outcome(stage: StageRecord) -> Html | None:
    """What the stage wrote about itself, but for bookkeeping."""
    hidden = ("format", "stage", "fingerprint", "probe")
    facts = [(k, v) for k, v in stage.facts.items() if k not in hidden and isinstance(v, bool | int | float | str)]
    if not facts:
        return None
    words = [f"{k.replace('_', ' ')} {_fact(v)}" for k, v in facts]
    return tag("p", join(*(tag("span", w) for w in words)), class_="outcome")


def _fact(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else short(value)


def _figure(stage: StageRecord, picture: Picture) -> Html:
    series = [Series(label, stage.columns[column]) for label, column in picture.lines]
    chart = line_chart(picture.caption, series, unit=picture.unit, zero=picture.zero)
    shown = [
        tag(
            "span",
            tag("i", "", class_=f"swatch s{i}") if len(series) > 1 else None,
            f"{s.name} " if len(series) > 1 else "",
            short(s.points[-1][1]),
        )
        for i, s in enumerate(series)
    ]
    return tag("figure", tag("figcaption", tag("span", picture.caption), tag("span", *shown, class_="last")), chart)


def _numbers(stage: StageRecord) -> Html:
    """The curves as a table, for reading and for screen readers; long runs are thinned, the last row always stands."""
    names = ordered_columns(stage)
    values: dict[float, dict[str, float]] = {}
    for name in names:
        for step, value in stage.columns[name]:
            values.setdefault(step, {})[name] = value
    steps = sorted(values)
    every = max(1, -(-len(steps) // MOST_ROWS))
    kept = steps[::every] if (len(steps) - 1) % every == 0 else [*steps[::every], steps[-1]]
    rows = [[short(step), *(short(values[step].get(name)) for name in names)] for step in kept]
    caption = "Numbers behind the curves" + (f" (every {every}th row)" if every > 1 else "")
    return tag("details", tag("summary", caption), table(["step", *names], rows, caption))
