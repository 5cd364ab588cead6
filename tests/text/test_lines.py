"""Which line ends only wrap a paragraph: kinds of texts in a table, and prose wrapped at any width."""

import textwrap

import pytest
from hypothesis import given, strategies as st

from realm.text import lines as canonical
from realm.text.folding import unbroken
from realm.text.lines import canonical_line, canonical_text, lines_of, passages_of
from realm.text.sentences import split_sentences

LETTER = (
    "The old weir on the river Dorn was rebuilt in the year 1931 by Ellen Marsh, an engineer from Leeds, who had come to the town of Velm "
    "only two years before. The work cost 4,500 crowns and took from March to November, and the stone was cut in the quarry of Upper "
    "Tarvik by forty men. The keeper of the weir was named on the 3rd of May by the council: it was Jonas Berg of Korr."
)
GERMAN = (
    "Das alte Wehr an der Dorn wurde im Jahr 1931 von Ellen Marsh wieder aufgebaut, einer Ingenieurin aus Leeds, die erst zwei Jahre zuvor "
    "nach Velm gekommen war. Die Arbeit kostete 4500 Kronen und dauerte von März bis November."
)
PASSAGES = {
    "parted word": ("The stone was cut in the quarry of Upper Tar-\nvik.", ["The stone was cut in the quarry of Upper Tarvik."]),
    "two lines": ("Rebuilt in the year 1931 by Ellen\nMarsh, an engineer from Leeds.",
        ["Rebuilt in the year 1931 by Ellen Marsh, an engineer from Leeds."]),
    "abbreviation": ("The stone was brought to the town by the old engineer and his friend Dr.\nSmith of Korr, who lived there.",
        ["The stone was brought to the town by the old engineer and his friend Dr. Smith of Korr, who lived there."]),
    "year": ("The bridge was opened after a long delay in the year\n1931 by the mayor.",
        ["The bridge was opened after a long delay in the year 1931 by the mayor."]),
    "paragraphs": ("One ends here.\n\nTwo begins\nhere and ends.", ["One ends here.", "Two begins here and ends."]),
    "long lines": ("This is " + "very " * 40 + "long.\nThe next is another.",
        ["This is " + "very " * 40 + "long.", "The next is another."]),
    "request for comments": (
        "   The client MUST send a request to the server before the session is\n   opened. The server Alpha-7 answers Ellen\n   Marsh.",
        ["The client MUST send a request to the server before the session is opened. The server Alpha-7 answers Ellen Marsh."]),
    "quoted mail": ("> It was rebuilt in the year 1931 by Ellen\n> Marsh, an engineer.\nYes, I know.",
        ["> It was rebuilt in the year 1931 by Ellen Marsh, an engineer.", "Yes, I know."]),
    "quoted paragraphs": ("> One was rebuilt by\n> Ellen Marsh.\n>\n> Two was not, which was told by\n> Jonas Berg of\n> Korr.",
        ["> One was rebuilt by Ellen Marsh.", ">", "> Two was not, which was told by Jonas Berg of Korr."]),
    "header of a mail": ("From: Ann Lind\nTo: Bob Orm\nSubject: The weir", ["From: Ann Lind", "To: Bob Orm", "Subject: The weir"]),
    "list": ("- one item\n- two items that are\n  long\n- three", ["- one item", "- two items that are long", "- three"]),
    "numbered": ("1. Rebuilt by Ellen\n   Marsh.\n2. Opened by\n   Otto Berg.", ["1. Rebuilt by Ellen Marsh.", "2. Opened by Otto Berg."]),
    "ingredients": ("two eggs\n200 g flour\nmilk\na pinch of salt", ["two eggs", "200 g flour", "milk", "a pinch of salt"]),
    "titles": ("Moby Dick\nWar and Peace\nThe Trial", ["Moby Dick", "War and Peace", "The Trial"]),
    "address": ("Hotel Sonne\nBahnhofstrasse 12\n8001 Zürich", ["Hotel Sonne", "Bahnhofstrasse 12", "8001 Zürich"]),
    "verse": ("Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye,",
        ["Tyger Tyger, burning bright,", "In the forests of the night;", "What immortal hand or eye,"]),
    "heading": ("Tickets\nEntry costs 12 crowns and is paid at the gate by every visitor who is\nolder than six.",
        ["Tickets", "Entry costs 12 crowns and is paid at the gate by every visitor who is older than six."]),
    "heading and two lines": (
        "Report of the Velm Weir Company\nThe old weir on the Dorn was rebuilt in 1931 by the engineer Ellen\nMarsh, of Leeds.",
        ["Report of the Velm Weir Company", "The old weir on the Dorn was rebuilt in 1931 by the engineer Ellen Marsh, of Leeds."]),
    "fields": ("Mayor: Ida Holm\nDeputy: Per Lund", ["Mayor: Ida Holm", "Deputy: Per Lund"]),
    "table": ("Name\tBorn\nAnn\t1950\nBob\t1901", ["Name\tBorn", "Ann\t1950", "Bob\t1901"]),
    "code": ("def f(x):\n    y = x\n    print(y)", ["def f(x):", "y = x", "print(y)"]),
    "comment of a program": (
        "/**\n * Rebuilt by\n * Ellen Marsh.\n *\n * @param a one\n */\n\n* Rebuilt by\n* Ellen\n\n-- Rebuilt by\n-- Ellen Marsh.",
        ["/**", "* Rebuilt by Ellen Marsh.", "*", "* @param a one", "*/", "* Rebuilt by", "* Ellen", "-- Rebuilt by Ellen Marsh."]),
    **{f"comments behind {mark}": (
        f"x = 1\n{mark} The weir was rebuilt by\n{mark} Ellen Marsh.\n{mark}\n{mark} It is told of\n{mark} Otto.\ny = 2",
        ["x = 1", f"{mark} The weir was rebuilt by Ellen Marsh.", mark, f"{mark} It is told of Otto.", "y = 2"])
        for mark in ("REM", "rem", "@REM", "::", "dnl", "NB.", "*>", '"', '.\\"', "'\\\"", "#", "//", ";;", "%", "--", "!", "'")},
    **{f"comment in {opened}": (
        f"{opened} Rebuilt by\nEllen Marsh. {closed}\nmain = f(x)", [f"{opened} Rebuilt by Ellen Marsh. {closed}", "main = f(x)"])
        for opened, closed in (("{-", "-}"), ("(*", "*)"), ("<#", "#>"), ("<!--", "-->"), ("/*", "*/"))},
    "comment of Fortran": ("C     Rebuilt by\nC     Ellen.\n      X = 1", ["C     Rebuilt by Ellen.", "X = 1"]),
    "a word that is a mark elsewhere": ("The cat was seen to dream during\nREM sleep.", ["The cat was seen to dream during REM sleep."]),
    "rule": ("Ann Lind\n--------\nwas born in 1950 and\ndied.", ["Ann Lind", "--------", "was born in 1950 and died."]),
    "Chinese": ("东京是日本的首都,也是日本最大的城\n市,人口约一千四百万。", ["东京是日本的首都,也是日本最大的城市,人口约一千四百万。"]),
    "capitals and figures by chance": (
        "The weir on the river Dorn was rebuilt by Ellen\nMarsh, an engineer of Leeds, in the year of the gale,\n1931 after the flood.",
        ["The weir on the river Dorn was rebuilt by Ellen Marsh, an engineer of Leeds, in the year of the gale, 1931 after the flood."]),
    "sonnet": ("That time of year thou mayst in me behold\nWhen yellow leaves, or none, or few, do hang\nUpon those boughs.",
        ["That time of year thou mayst in me behold", "When yellow leaves, or none, or few, do hang", "Upon those boughs."]),
    "paragraphs by indent": ("  The weir was rebuilt by Ellen\nMarsh, an engineer.\n  The lock was built by Otto\nBerg of Korr.",
        ["The weir was rebuilt by Ellen Marsh, an engineer.", "The lock was built by Otto Berg of Korr."]),
    "Russian": ("Старая плотина на реке Дорн была восстановлена инженером\nЕленой Марш.",
        ["Старая плотина на реке Дорн была восстановлена инженером Еленой Марш."]),
    "keys": ("name: weir\nabout: >\n  It was rebuilt by Ellen\n  Marsh.\nport: 80",
        ["name: weir", "about: > It was rebuilt by Ellen Marsh.", "port: 80"]),
    "string of a program": (
        "\"\"\"The weir was rebuilt by Ellen\nMarsh of Leeds.\n\"\"\"\nx = 1\n/* Told by\n   Otto Berg. */\n//! Told by\n//! Ida.",
        ["\"\"\"The weir was rebuilt by Ellen Marsh of Leeds.", "\"\"\"", "x = 1", "/* Told by Otto Berg. */", "//! Told by Ida."]),
    "commands": (
        "\\section{Weir}\nIt was rebuilt by Ellen\nMarsh.\n\\item One told by\n  Otto.\n* History\nThe lock was built by Otto\nBerg.",
        ["\\section{Weir}", "It was rebuilt by Ellen Marsh.", "\\item One told by Otto.", "* History", "The lock was built by Otto Berg."]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "passages"), PASSAGES.values(), ids=PASSAGES)
def test_passages(text, passages):
    assert [unbroken(text[start:end]) for start, end in passages_of(text)] == passages


HANGING = {
    "fields": (
        """\
:Author: Ellen Marsh
:Address: 12 Weir Road,
          Velm
:About: The old weir on the Dorn was
    rebuilt by Ellen
    Marsh.
:Version: 3""",
        """\
:Author: Ellen Marsh
:Address: 12 Weir Road, Velm
:About: The old weir on the Dorn was rebuilt by Ellen Marsh.
:Version: 3""",
    ),
    "fields of a program": (
        """\
Do it.

    :param width: the width in metres, as measured by
        Ellen Marsh
    :param height: the height
    :returns: the volume that
      flows""",
        """\
Do it.
:param width: the width in metres, as measured by Ellen Marsh
:param height: the height
:returns: the volume that flows""",
    ),
    "no field": (
        "It is told by\n:class:`Weir` of Ellen and of the\n:sup:`2` others.",
        "It is told by :class:`Weir` of Ellen and of the :sup:`2` others.",
    ),
    "footnote and figure": (
        ".. [1] Told by Otto\n   Berg of Korr.\n.. figure:: weir.png\n   :alt: The weir\n   :width: 200",
        ".. [1] Told by Otto Berg of Korr.\n.. figure:: weir.png\n:alt: The weir\n:width: 200",
    ),
    "definitions": (
        """\
weir
    A wall across a river that was built by
    Ellen Marsh.
lock
    A chamber between two gates, which Otto
    Berg built.""",
        "weir\nA wall across a river that was built by Ellen Marsh.\nlock\nA chamber between two gates, which Otto Berg built.",
    ),
    "ragged definitions": (
        """\
weir
  A wall that was built by Ellen
    Marsh of Leeds,
  in 1931
lock : gate
     Built by Otto, of
  whom Ida
   tells.""",
        "weir\nA wall that was built by Ellen Marsh of Leeds, in 1931\nlock : gate\nBuilt by Otto, of whom Ida tells.",
    ),
    "short definitions": ("weir\n  a wall\nlock\n    a gate of\n  Korr", "weir\na wall\nlock\na gate of Korr"),
    "arguments of numpy": (
        """\
Parameters
----------
x : int
    The first value that was measured by
    Ellen Marsh
y : float, optional
    the second one.""",
        """\
Parameters
----------
x : int
The first value that was measured by Ellen Marsh
y : float, optional
the second one.""",
    ),
    "bibliography": (
        """\
Marsh, E. The old weir on the river Dorn and its
    history. Leeds, 1931.
Berg, O. The locks of Korr and of Velm and the
    keepers. 1901.""",
        """\
Marsh, E. The old weir on the river Dorn and its history. Leeds, 1931.
Berg, O. The locks of Korr and of Velm and the keepers. 1901.""",
    ),
    "ragged prose": (
        """\
The weir on the river Dorn was rebuilt in the
  year 1931 by Ellen Marsh, an engineer who came
from Leeds and had been two years in the town of
  Velm.""",
        "The weir on the river Dorn was rebuilt in the year 1931 by Ellen Marsh, an engineer who came from Leeds and had been two years in "
        "the town of Velm.",
    ),
}


@pytest.mark.parametrize(("text", "lines"), HANGING.values(), ids=HANGING)
def test_what_hangs_from_a_line_is_one_passage(text, lines):
    assert [unbroken(text[start:end]) for start, end in passages_of(text)] == lines.split("\n")


@given(st.sampled_from([LETTER, GERMAN]), st.integers(24, 110), st.sampled_from(["", "   ", "> ", "# ", "// "]))
def test_wrapped_prose_has_the_sentences_and_wordpieces_of_one_line(text, width, margin):
    wrapped = "\n".join(margin + line for line in textwrap.wrap(text, width, break_on_hyphens=False))
    found = [unbroken(wrapped[start:end]) for start, end in split_sentences(wrapped, passages_of(wrapped))]
    assert [sentence.lstrip("># /") for sentence in found] == [text[start:end] for start, end in split_sentences(text)]


@given(st.text(st.sampled_from("aB1.:- >\n\t|é"), max_size=60))
def test_passages_hold_what_the_lines_hold(text):
    """Each passage is one line or several, in order, and none is lost."""
    lines, passages = lines_of(text), passages_of(text)
    assert {start for start, _ in passages} <= {start for start, _ in lines}
    assert "".join("".join(text[a:b].split()) for a, b in passages) == "".join(text.split())


@given(st.text(st.characters(exclude_characters="\n\r\v\f\x85\u2028\u2029")))
def test_a_text_on_one_line_is_one_passage(text):
    assert passages_of(text) == lines_of(text)


def test_line_ends_and_invisible_characters_are_found_fast():
    assert canonical_text("a\r\nb\rc\u2028d\x85e\x0cf") == "a\nb\nc\nd\ne\nf"
    assert canonical_text("\ufeffa\x00b\u200bc\u00add\u202ee\x81 \x80 5 \x93f\x94") == "abcde € 5 “f”"
    assert canonical_text("می\u200cخواهم 👩\u200d💻 \u0600١ tab\there") == "می\u200cخواهم 👩\u200d💻 \u0600١ tab\there"
    assert canonical_text("lone \ud800 surrogate") == "lone \ufffd surrogate"
    assert canonical_text("e\u0301 ﬁ") == "e\u0301 ﬁ"
    assert canonical_line("  two\r\nlines\u00a0 ") == "two lines"
    shown = canonical_text("N\bNA\bA\bA of _\bd_\be, \x1b[1;31mred\x1b[m \x1b]8;;http://x.y\x1b\\link\x1b]8;;\x07\x1b(B")
    assert shown == "NA of de, red link"
    slow = (canonical._INVISIBLE, canonical._LINE_ENDS, canonical._SURROGATE)
    changed = [character for character in map(chr, range(0x110000)) if any(pattern.search(character) for pattern in slow)]
    assert len(changed) > 2000
    assert all(canonical._SUSPECT.search(character) for character in changed)


@given(st.text(st.one_of(st.characters(), st.sampled_from("\r\n\x00\ud800\u200b\ufeff\u2028"))))
def test_is_a_fixed_point(text):
    once = canonical_text(text)
    assert canonical_text(once) == once
    once.encode("utf-8")
