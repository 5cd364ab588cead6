"""Examples: answers with the documents they come from, and one masked sentence explained document by document."""

from typing import Any

from realm.answering.cloze import MASK
from realm.report.markup import WORDS, Html, join, short, table, tag
from realm.report.read import number

SHOWN_EVIDENCE = 3
SHOWN_ACCEPTED = 3
LONGEST_TEXT = 420
CONTEXT = 160
EXPLAINED = ["Document", "p(z|x)", "p(y|z,x)", "r(z)", "Utility"]


def answers_section(answers: list[dict[str, Any]]) -> Html | None:
    """Example answers; ``answers`` are Answer.to_dict()."""
    if not answers:
        return None
    cards = [_answer(answer) for answer in answers]
    return tag("section", tag("h2", "Questions answered"), tag("p", WORDS["about"]["answers"], class_="about"), *cards)


def claims_section(claims: list[str]) -> Html | None:
    shown = tag("ol", *(tag("li", claim) for claim in claims))
    return tag("section", tag("h2", "What it shows"), shown, class_="claims") if claims else None


def _answer(answer: dict[str, Any]) -> Html:
    heading = tag("h3", answer.get("question", ""), class_="question", dir="auto")
    p = tag("span", f"p = {short(number(answer.get('p')))}", class_="p")
    kept_back = tag("span", "abstained; closest: ", class_="note") if answer.get("abstained") else None
    said = tag("p", kept_back, tag("strong", tag("bdi", answer.get("answer") or "no answer")), _verdict(answer), p, class_="answer")
    evidence = records(answer.get("evidence"))
    read = tag("ol", *map(_evidence, evidence[:SHOWN_EVIDENCE]), class_="evidence") if evidence else None
    more = f"{SHOWN_EVIDENCE} of the {len(evidence)} documents read are shown" if len(evidence) > SHOWN_EVIDENCE else None
    return tag("article", heading, said, read, tag("p", more, class_="note") if more else None, class_="card")


def _verdict(answer: dict[str, Any]) -> Html | None:
    correct, accepted = answer.get("correct"), [str(a) for a in as_list(answer.get("accepted"))]
    if not isinstance(correct, bool):
        return None
    if correct:
        return tag("span", "right", class_="up")
    return tag("span", f"wrong; accepted: {' / '.join(accepted[:SHOWN_ACCEPTED])}", class_="down")


def _evidence(item: dict[str, Any]) -> Html:
    name = " → ".join(str(title) for title in as_list(item.get("path"))) or item.get("title") or "untitled"
    title = tag("p", tag("b", tag("bdi", name)), meter("p(z|x)", number(item.get("p_z"))), class_="source")
    start, end = item.get("start"), item.get("end")
    return tag("li", title, tag("p", marked(str(item.get("text", "")), start, end), dir="auto"))


def marked(text: str, start: Any, end: Any) -> Html:
    """``text`` cut around [start, end), which is marked; without a usable range the text's beginning."""
    usable = isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text)
    if not usable:
        return join(clipped(text, LONGEST_TEXT))
    left, right = 0, len(text)
    if len(text) > LONGEST_TEXT:  # whole words: from a space to a space, or where it falls in a script without spaces
        left = _border(text.find(" ", max(0, start - CONTEXT), start) + 1, start - CONTEXT) if start > CONTEXT else 0
        right = _border(text.rfind(" ", end, end + CONTEXT), end + CONTEXT) if end + CONTEXT < len(text) else len(text)
    return join("… " if left else "", text[left:start], tag("mark", text[start:end]), text[end:right], " …" if right < len(text) else "")


def _border(at_space: int, otherwise: int) -> int:
    return at_space if at_space > 0 else otherwise


def clipped(text: str, most: int) -> str:
    """The beginning of a text in whole words."""
    return text if len(text) <= most else text[: max(text.rfind(" ", 0, most), most // 2)] + " …"


def meter(name: str, rate: float | None) -> Html:
    bar = tag("i", tag("i", "", style=f"width:{100 * min(1.0, max(0.0, rate or 0.0)):.1f}%"), class_="bar", aria_hidden="true")
    return tag("span", f"{name} {probability(rate)}", bar, class_="meter")


def explanation_section(found: dict[str, Any] | None) -> Html | None:
    """One explained sentence; ``found`` is Explanation.to_dict()."""
    if found is None:
        return None
    p_y, p_null = number(found.get("p_y")), number(found.get("p_y_null"))
    total = tag("p", f"p(y|x) = {short(p_y)} with documents, {short(p_null)} with none.", class_="answer")
    rows = [_candidate(c) for c in records(found.get("candidates"))]
    parts = [
        cloze(found),
        total,
        _predictions(found),
        table(EXPLAINED, rows, "First no document, then the documents read in the order found") if rows else None,
        tag("p", WORDS["about"]["explanation"], class_="note"),
    ]
    return tag("section", tag("h2", "A masked sentence explained"), tag("article", *parts, class_="card"))


def cloze(found: dict[str, Any]) -> Html:
    """The sentence with its hidden words marked."""
    pieces = str(found.get("text", "")).split(MASK)
    targets = [str(t) for t in as_list(found.get("targets"))]
    filled: list[Any] = [pieces[0]]
    for i, after in enumerate(pieces[1:]):
        filled += [tag("mark", targets[i] if i < len(targets) else MASK), after]
    return tag("h3", *filled, class_="question")


def _predictions(found: dict[str, Any]) -> Html | None:
    shown = records(found.get("predictions"))
    if not shown:
        return None
    items = [tag("li", str(p.get("text", "")), tag("span", short(number(p.get("p"))), class_="p")) for p in shown]
    return tag("div", tag("p", "The model would fill in"), tag("ul", *items), class_="predictions")


def _candidate(candidate: dict[str, Any]) -> list[Any]:
    null = bool(candidate.get("null"))
    name = "no document" if null else candidate.get("title") or "untitled"
    excerpt = clipped("" if null else str(candidate.get("text", "")), CONTEXT)
    numbers = {key: number(candidate.get(key)) for key in ("p_z", "p_y_given_z", "r", "utility")}
    return [
        join(tag("b", name), tag("span", excerpt, class_="excerpt") if excerpt else None),
        meter("", numbers["p_z"]),
        probability(numbers["p_y_given_z"]),
        signed(numbers["r"]),
        signed(numbers["utility"]),
    ]


def signed(value: float | None) -> Html:
    """A number whose sign matters, told by a sign and a colour."""
    kind = "" if value is None or value == 0 else "up" if value > 0 else "down"
    shown = short(value) if value is None or 0 < abs(value) < 0.005 else f"{abs(value):.2f}"
    return tag("span", f"+{shown}" if kind == "up" else f"−{shown.lstrip('−')}" if kind == "down" else shown, class_=kind or None)


def probability(rate: float | None) -> str:
    """A probability so that a column of them lines up."""
    return short(rate) if rate is None or 0 < rate < 0.001 else f"{rate:.3f}"


def as_list(value: Any) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def records(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none if it is not a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]
