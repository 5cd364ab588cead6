"""Output for people: tables and marked text on standard output, and the one JSON line for programs."""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from realm.progress import QUIET

EXCERPT_CHARS = 300
_CUT_BEFORE, _CUT_AFTER = re.compile(r"\A(?:\S{0,40}(?=\s)|\S)"), re.compile(r"(?:(?<=\s)\S{0,40}|\S)\Z")
"""The part of a word that an excerpt leaves out at an edge; one character where no word ends nearby."""
MAX_NAMED_DOCUMENTS = 10
"""Documents that are named; of more their number."""


def last_line(value: Any, wanted: bool) -> None:
    """``value`` as one JSON line, if it is wanted; in ASCII where the output cannot hold it. A lone surrogate must not cost the answer."""
    if wanted:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace").decode("utf-8")
        try:
            line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            line = json.dumps(json.loads(line))
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def facts(values: dict[str, Any]) -> None:
    """Names and values, one a line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, value in values.items():
        table.add_row(Text(name.replace("_", " ")), Text(_plain(value)))
    _print(table)


def result(value: dict[str, Any], json: bool, people: Callable[[dict[str, Any]], None] = facts) -> None:
    """Print the result of a verb: as one JSON line, or by ``people`` as people read it."""
    if not json:
        people(value)
    last_line(value, json)


def note(text: str) -> None:
    """A remark on standard error, unless ``--quiet`` is given."""
    if not os.environ.get(QUIET):
        print(text, file=sys.stderr)


def _print(*things: Any) -> None:
    """Text and tables through rich, no markup read in text."""
    from rich.console import Console

    console = Console(highlight=False)
    for thing in things:  # a pipe gets whole lines
        console.print(thing, markup=False, soft_wrap=not console.is_terminal and not hasattr(thing, "columns"))


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(cell if isinstance(cell, str) else rate(cell)) for cell in row))
    return table


def rate(value: float | None) -> str:
    """A share or a score with three decimals."""
    return "–" if value is None else f"{value:.3f}"


def _plain(value: Any) -> str:
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def document(value: dict[str, Any]) -> None:
    """A document block by block, a sentence a line, salient spans in colour on a terminal and in [[...]] elsewhere; then its place."""
    from rich.text import Text

    for block in value["blocks"]:
        _print(Text.assemble((f"[{block['block_id']}] {block['title']}", "bold")))
        _picture(block, "  ")
        for sentence in block["sentences"]:
            _print(_marked(sentence["text"], sentence["spans"]))
        _print("")
    first = value["blocks"][0]
    _print(f"{first['source']}:{first['line']}" if first["line"] else first["source"])


def _shown(words: str, style: str) -> tuple[str, str]:
    """Words that stand out: by ``style`` on a terminal, in [[...]] elsewhere."""
    return (words if sys.stdout.isatty() or not words else f"[[{words}]]"), style


def _marked(text: str, spans: Sequence[Sequence[int]]) -> Any:
    from rich.text import Text

    marked, position = Text("  "), 0
    for start, end in spans:
        marked.append(text[position:start]).append(*_shown(text[start:end], "bold cyan"))
        position = end
    return marked.append(text[position:])


def cached(value: dict[str, Any]) -> None:
    """Documents in the cache, and what is stored for each."""
    from datetime import datetime

    _print(value["directory"])
    for run in value["runs"]:
        when = datetime.fromtimestamp(run["asked"] or 0).strftime("%Y-%m-%d %H:%M")
        size = f"{run['documents']:,} documents, {run['blocks']:,} blocks, {run['bytes'] / 2**20:,.0f} MiB"
        _print(f"  {', '.join(run['sources'] or ())}", f"      {size}, {run['body']}; asked {when}")
        if "files" in run:
            _print(f"      {run['read']:,} of {run['files']:,} files read; the others:" if run["not_read"] else "      every file was read")
            _print(*(f"        {file['path']}: {file['reason']}" for file in run["not_read"]))
            _print(*(["      left out of those read:"] if run["left_out"] else []))
            _print(*(f"        {row['path']}, line {row['line']}: {row['reason']}" for row in run["left_out"]))
    if not value["runs"]:
        _print("  the cache is empty")


def hits(value: dict[str, Any]) -> None:
    """Search results, best first."""
    for hit in value["results"]:
        _print(f"{hit['score']:.2f}  {_named(hit)}", f"      {_around(hit['text'], 0, 0, EXCERPT_CHARS)[1]}")
        _picture(hit, "      ")


def passages(value: dict[str, Any]) -> None:
    """The nearest blocks in the order of all that they were searched by, of which their score is only one part."""
    _print(value["text"])
    for number, hit in enumerate(value["results"], 1):
        _print(f"  {number}. {_named(hit)}", f"     {_around(hit['text'], 0, 0, EXCERPT_CHARS)[1]}")
        _picture(hit, "     ")
    _print("")


def answer(value: dict[str, Any], mark: str = "", most: int = 3, link: Callable[[dict[str, Any]], str] = lambda _: "") -> None:
    """An answer, and the first documents it comes from, at most so many, with the words marked; ``link``: an address that a terminal opens
    for evidence."""
    from rich.text import Text

    sure = "" if value.get("confidence") is None else f", confidence {value['confidence']:.2f}"
    _print(Text(f"{value['question']}"), Text.assemble("  ", *_said(value), f"  p = {value['p']:.2f}{sure}{mark}"))
    if value.get("note"):
        note(f"note: {value['note']}")
    for claim in value.get("prose", ()):
        cited = "".join(f" [{number}]" for number in claim["cites"])
        _print(Text.assemble(f"  {claim['text']}{cited}", "" if claim["supported"] else (" (not in the evidence)", "bold red")))
    most = max(most, max((number for claim in value.get("prose", ()) for number in claim["cites"]), default=0))
    for number, evidence in enumerate(value["evidence"][:most], 1):
        text, start, end = evidence["text"], evidence["start"], evidence["end"]
        also = f", also in {others} other file{'s' * (others > 1)}" if (others := len(evidence.get("also_in", ()))) else ""
        before, after = _around(text, start, end, EXCERPT_CHARS // 2)
        named = (_named(evidence), f"link {uri}" if (uri := link(evidence)) else "")
        head = Text.assemble(f"  {number}. ", named, f"{also}, p = {evidence['p_span']:.2f}\n     ")
        _print(Text.assemble(head, before, _shown(_one_line(text[start:end]), "bold underline"), after))
        _picture(evidence, "     ")
    _print("")


def _named(block: dict[str, Any]) -> str:
    """The title of a block's document and the folders and headings that it stands under, or the titles that led to it; and its id."""
    name = " -> ".join(block.get("path", ())) or ": ".join(filter(None, (block["title"], block.get("heading"))))
    return f"{name} ({block['doc_id']})" if name else block["doc_id"]


def _around(text: str, start: int, end: int, chars: int) -> tuple[str, str]:
    """So much before and behind a place, each on one line; words are not cut, unless the script has no spaces."""
    before, after = text[max(0, start - chars - 1) : start], text[end : end + chars + 1]
    if len(before) < start:
        before = "…" + _CUT_BEFORE.sub("", before)
    if end + len(after) < len(text):
        after = _CUT_AFTER.sub("", after, count=1) + "…"
    return _one_line(before), _one_line(after)


def _said(value: dict[str, Any]) -> list[Any]:
    """Claim of an answer, by its level and its form, as parts of a rich text."""
    if value.get("level") == "nothing":
        return ["nothing here is about that; these passages come closest."]
    if value.get("level") == "closest":
        return ["I am not sure; this passage comes closest:"]
    answer, shown = value["answer"] or "no answer", value.get("shown", "")
    before = {"yes": "yes: ", "no": "no: "}.get(value.get("said", ""), "probably: " if value.get("level") == "probably" else "")
    if value.get("kind", "span") == "span" or answer not in shown:
        return [before, (answer, "bold")]
    first, _, last = shown.partition(answer)
    return [before, *((part, style) for part, style in ((first, ""), (answer, "bold underline"), (last, "")))]


def _one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def _picture(value: dict[str, Any], indent: str) -> None:
    if value.get("media"):
        _print(f"{indent}picture: {value['media']}")


def explanation(value: dict[str, Any]) -> None:
    """One masked sentence, document by document."""
    target = " | ".join(value["targets"])
    parts = any(p["text"] == target and p["p"] > value["p_y"] + 0.001 for p in value["predictions"])
    _print(
        value["text"],
        f"  {target}: p(y|x) = {value['p_y']:.3g} with documents, {value['p_y_null']:.3g} with none",
        f"  the model would fill in{', parts of a name counted for it' if parts else ''}: "
        + ", ".join(f"{p['text']} ({p['p']:.2g})" for p in value["predictions"]),
    )
    rows = []
    for c in value["candidates"]:
        utility = "–" if c["utility"] is None else f"{c['utility']:+.2f}"
        name = "no document" if c["null"] else f"{c['title']}: {c['text'][:60]}"
        rows.append([name, rate(c["p_z"]), f"{c['p_y_given_z']:.3g}", f"{c['r']:+.3f}", utility])
    _print(_table("", ["document", "p(z|x)", "p(y|z,x)", "r(z)", "utility"], rows))


def evaluation(value: dict[str, Any]) -> None:
    """Rates of an evaluation: a table of answers and one of recall, a row for each dataset."""
    rows = dict(value["datasets"]) | {f"in {language or 'no language'}": r for language, r in value["languages"].items()}
    rows |= {"together": value} if len(value["datasets"]) > 1 else {}
    if rows:
        depths = list(value["recall"])
        selective = {"coverage": "coverage", "selective EM": "selective_em"} if value["abstain_below"] else {}
        answers = [
            [
                name,
                f"{r['n']:,}",
                r["em"],
                " to ".join(map(rate, r["em_interval"] or ())) or "–",
                *(r[n] for n in ("regex_em", "f1", "reader_oracle", *selective.values())),
            ]
            for name, r in rows.items()
        ]
        recall = [[f"{name}, by answer", *r["recall"].values()] for name, r in rows.items()]
        recall += [[f"{name}, gold", *r["recall_gold"].values()] for name, r in rows.items() if r["recall_gold"]]
        _print(_table("Answers", ["", "questions", "EM", "95 %", "regex EM", "F1", "reader oracle", *selective], answers))
        _print(_table("Recall", ["", *(f"@{d}" for d in depths)], recall))
    remarks = {name: value[name] for name in ("cut_questions", "skipped", "invalid_patterns", "slow_patterns") if value[name]}
    if remarks:
        facts(remarks)


def results(value: dict[str, Any]) -> None:
    """Stages of a run: seconds and rates."""
    depths = sorted({d for stage in value["stages"].values() for d in stage.get("recall", {})}, key=int)
    rows = [
        [name, f"{stage['seconds'] or 0:.0f}", *((stage.get("recall") or {}).get(d) for d in depths), stage.get("em")]
        for name, stage in value["stages"].items()
    ]
    _print(_table(value["run"], ["stage", "seconds", *(f"recall@{d}" for d in depths), "EM"], rows))


def imported(value: dict[str, Any]) -> None:
    """Print the imported and the unused tensors of each model, the unused by reason."""
    facts({"run": value["run"], "blocks": value["blocks"], **value["parts"]})
    for model in value["models"]:
        _print(f"{model['directory']} ({model['kind']}): {model['imported']} tensors imported")
        for reason in dict.fromkeys(model["unused"].values()):
            names = [name for name, why in model["unused"].items() if why == reason]
            _print(f"  unused, {reason}: {', '.join(names)}")
        if model["fresh"]:
            _print(f"  not in it, so they start at random: {', '.join(model['fresh'])}")
    for remark in value["notes"]:
        note(remark)


def plan(value: dict[str, Any]) -> None:
    """Print a recipe's networks and memory, and whether its corpus can teach."""
    parts = ", ".join(f"{name} {count:,}" for name, count in value["parameters"].items())
    _print(f"{sum(value['parameters'].values()):,} parameters: {parts}", f"retrieval: {value['retrieval']}")
    if value["not_measured"]:
        _print(f"Not read here: {value['not_measured']}.")
        return
    corpus, share = value["corpus"], value["corpus"]["single_block_span_share"]
    _print(
        f"memory of the largest step: {value['step_bytes'] / 2**30:.1f} GiB",
        f"{corpus['blocks']:,} blocks, {corpus['spans']:,} salient spans, {share:.0%} of them in one block only",
        "This corpus can teach a retriever." if value["teaches"] else f"This corpus cannot teach a retriever. {value['advice']}.",
    )


def damage(found: Sequence[Any], aside: Sequence[str]) -> None:
    """Print damaged files (``runs.mending.Damage``) with their repair, and names of generations moved aside earlier."""
    for one in found:
        _print(f"{one.path}: {one.problem}")
        _print(f"  {'can be repaired: ' if one.mend else ''}{one.cure}")
        if one.documents:
            more = f" and {len(one.documents) - MAX_NAMED_DOCUMENTS} more" if len(one.documents) > MAX_NAMED_DOCUMENTS else ""
            _print(f"  documents: {', '.join(one.documents[:MAX_NAMED_DOCUMENTS])}{more}")
    if not found:
        _print("no damage found")
    if aside:
        _print(f"moved aside earlier, not needed: {', '.join(aside)}")


def claim(value: Any) -> None:
    """One thing that the demo shows: what it says, what was answered, what was explained."""
    from rich.text import Text

    _print(Text(value.says, "bold"))
    for found in value.answers:
        answer(found, "  right" if found["correct"] else f"  wrong: {' / '.join(found['accepted'])}", most=1)
    if value.explanation is not None:
        explanation(value.explanation)
    _print("")


def shown(summary: dict[str, Any]) -> None:
    """The end of the demo."""
    _print(f"All of it took {summary['seconds']:.0f} s; see {summary['run']}/report.html, or ask: realm ask {summary['run']}")


def models(values: list[dict[str, Any]]) -> None:
    """Known bodies: a row each, and whether its files are on this machine."""
    head = ["model.body", "languages", "shape", "M", "licence", "here"]
    rows = [
        [v["name"], v["languages"], f"{v['layers']} x {v['width']}", str(v["parameters"]), v["licence"], "yes" if v["directory"] else "no"]
        for v in values
    ]
    _print(_table("Published bodies (layers x width; million parameters)", head, rows))
