"""HTML as blocks: every container is visited, marks keep their meaning, and the frame of a page is left out."""

import pytest
from hypothesis import given, strategies as st

from realm.documents.pages.hypertext import blocks_of, page_of, text_of, without_frame

PROSE = "<p>The town of Velm lies on the river Dorn and has a harbour that was built in the nineteenth century by the company of Brink.</p>"
CONTAINERS = {
    "list": ("<h2>Officers</h2><ul><li>Mayor: Ida</li><li>Deputy: Per</li></ul>", ["Officers", "Mayor: Ida", "Deputy: Per"]),
    "descriptions": ("<dl><dt>Height</dt><dd>3 m</dd><dt>Depth:<dd>9 m<dd>or 10 m</dl>", ["Height: 3 m", "Depth: 9 m", "or 10 m"]),
    "sections": ("<section><h2>Tickets</h2><p>Entry costs 12.</p></section>", ["Tickets", "Entry costs 12."]),
    "form": ("<form><label>Policy</label><input value='A-44'><input type=hidden value=x><p>Ends.</p></form>", ["Policy A-44", "Ends."]),
    "aside": ("<aside>Entry costs 12.</aside><blockquote>The best, says Ota.</blockquote>", ["Entry costs 12.", "The best, says Ota."]),
    "question": ("<div><button>Who pays?</button><div>The tenant pays.</div></div>", ["Who pays?", "The tenant pays."]),
    "details": ("<details><summary>Who is the mayor?</summary>Ida Holm</details>", ["Who is the mayor?", "Ida Holm"]),
    "figure": ("<figure><img src=a.png><figcaption>The weir, 1931</figcaption></figure>", ["The weir, 1931"]),
    "bare text": ("Bare <b>text</b> here<hr>and there", ["Bare text here", "and there"]),
    "custom element": ("<my-box>Mill (<x-y>May</x-y>, 9).</my-box><my-box>Pond</my-box>", ["Mill (May, 9). Pond"]),
    "nested lists": ("<ol start=3><li>c<ul><li>x</ul><li value=7>d</ol>", ["3. c", "x", "7. d"]),
    "nested tables": ("<table><tr><td>outer<td><table><tr><td>key<td>77</table></table>", ["outer | key | 77"]),
    "choices": ("<legend>Size</legend><select><option>none<optgroup label=us><option>big</select>", ["Size", "none", "us", "big"]),
    "fallbacks": ("<object data=x><p>Inside</p></object><noframes>outside</noframes>", ["Inside", "outside"]),
    "drawing": ("<svg><title>no</title><text>Quay <tspan>wall</tspan></text><desc>A plan</desc></svg>", ["Quay wall", "A plan"]),
    "shadow": ("<x-a><template shadowrootmode=open><p>Seen.</p></template></x-a>", ["Seen."]),
    "CDATA": ("<p><![CDATA[Open from 9.]]></p>", ["Open from 9."]),
    "old tags": ("<xmp>a  b</xmp><marquee>Sale</marquee><listing>c</listing>d", ["a  b", "Sale", "c", "d"]),
    "scripts": ("<style>p{}</style><script>no()</script><template><p>no</p></template>yes", ["yes"]),
}
MARKS = {
    "powers": ("10<sup>6</sup> and 25 m<sup>2</sup> and 10<sup>-6</sup>", "10⁶ and 25 m² and 10⁻⁶"),
    "letters": ("2<sup>n</sup>, x<sup>n+1</sup>, x<sub>i</sub>, x<sub>i+1</sub>", "2^n, x^(n+1), x_i, x_(i+1)"),
    "ordinals": ("le 1<sup>er</sup> mai, the 3<sup>rd</sup>", "le 1er mai, the 3rd"),
    "notes": ("Mount<a epub:type='noteref' href='#f'>1</a>ains<a role=doc-noteref><sup>2</sup></a>", "Mount¹ains²"),
    "references": ("in 2019<sup>[3]</sup> here", "in 2019[3] here"),
    "bases": ("CO<sub>2</sub>, 20<sub>16</sub>", "CO₂, 20_16"),
    "deletions": ("costs <del>100</del><ins>80</ins>, <s>9</s> 7", "costs 80, 7"),
    "all deleted": ("<del>gone</del>", "~~gone~~"),
    "escaped tags": ("set <code>&lt;timeout&gt;</code> to 30", "set <timeout> to 30"),
    "empty cells": ("<table><tr><td>Ann<td><td>1950<tr><td>Bob<td>1901<td></table>", "Ann |  | 1950\n\nBob | 1901 |"),
    "cells across and down": ("<table><tr><td rowspan=2>A<td>1<tr><td>2<tr><td colspan=2>w<td>z</table>", "A | 1\n\nA | 2\n\nw |  | z"),
    "closed rows": ("<table><tr><td>1</td><td rowspan=2>A</td></tr> <tr><td>2</td></tr><tr><td>3</td></tr></table>", "1 | A\n\n2 | A\n\n3"),
    "wrapped lines": ("<pre>It was rebuilt in the year 1931 by\nEllen Marsh.</pre>", "It was rebuilt in the year 1931 by Ellen Marsh."),
    "styles": ("10<span style='vertical-align: super'>6</span> for <span style='text-decoration:line-through'>100</span>80", "10⁶ for 80"),
    "cells by role": ("<div role=row><span role=cell>Ida</span><span role=cell>30</span></div>", "Ida | 30"),
    "cells by style": ("<b style='display:table-cell'>Chair</b><b style='display:table-cell'>75</b>", "Chair\n\n75"),
    "letters of items": ("<ol type=a><li>x<li>y</ol><ol type=I start=4><li>z</ol>", "a. x\n\nb. y\n\nIV. z"),
    "counted down": ("<ol reversed start=2><li>x<li>y</ol><ol reversed><li>z</ol>", "2. x\n\n1. y\n\nz"),
    "boxes": ("<p><input type=checkbox checked>Paid<p><input type=radio>Sent", "☑ Paid\n\n☐ Sent"),
    "frame within": ("<iframe srcdoc='&lt;p>Framed&lt;/p>'></iframe>", "Framed"),
    "quotes, readings": ("He said <q>no</q>. <ruby>漢<rp>(</rp><rt>かん</rt>字<rt>じ</rt></ruby>です", "He said “no”. 漢字(かんじ)です"),
    "formulas": (
        "<math><mfrac><mn>1</mn><mrow>a+b</mrow></mfrac>, <msup><mn>10</mn><mn>6</mn></msup>, "
        "<semantics><msqrt>5</msqrt><annotation>x</annotation></semantics></math>",
        "1/(a+b), 10⁶, √5",
    ),
    "permalinks": ("<h2>C#<a href='#c'>¶</a></h2><dt>-x<a href='p#x'> # </a><dd>No. <a href='#f'>#1</a>", "C#\n\n-x: No. #1"),
    "code": ("<pre>def f():\n    return 1</pre>", "def f():\n    return 1"),
    "address": ("<p>Hotel Sonne<br>Bahnhofstrasse 12<br>8001 Zürich</p>", "Hotel Sonne\nBahnhofstrasse 12\n8001 Zürich"),
}


@pytest.mark.parametrize(("page", "blocks"), CONTAINERS.values(), ids=CONTAINERS)
def test_every_container_is_visited(page, blocks):
    assert [block.text for block in blocks_of(f"<html><body>{page}</body></html>")] == blocks


@pytest.mark.parametrize(("page", "blocks"), CONTAINERS.values(), ids=CONTAINERS)
def test_what_an_extractor_drops_of_the_content_stays(page, blocks):
    main = text_of(blocks_of(PROSE))
    assert [block.text for block in without_frame(blocks_of(PROSE + page), main)] == [main, *blocks]


def test_a_picture_that_is_never_read_is_told_in_the_text():
    page = "<img src='a.svg' alt='The mill in May'><img src='data:,' alt=Logo><img src='data:,' data-src=b.png alt='The old weir'>"
    blocks, _, figures = page_of(page)
    assert text_of(blocks) == "The mill in May" and [figure.said[0] for figure in figures] == ["The old weir"]


@pytest.mark.parametrize(("page", "text"), MARKS.values(), ids=MARKS)
def test_marks_keep_their_meaning(page, text):
    assert text_of(blocks_of(page)) == text


def test_tags_of_no_known_name_are_text_where_they_are_asked_for():
    page = "set <timeout> to 30</timeout> <T/> <b>now</b> <re-try> if a<i and c>d <x-a>here</x-a>"
    assert text_of(blocks_of(page, literal=True)) == "set <timeout> to 30</timeout> <T/> now <re-try> if a<i and c>d here"
    assert text_of(blocks_of("set <timeout> to 30</timeout> <T/> <b>now</b>")) == "set to 30 now"


@pytest.mark.parametrize("frame", [
    "<nav><a href=/>Home</a> <a href=/b>About us all</a></nav>",
    "<footer>Copyright 2019</footer>",
    "<div class='site-footer'>Imprint</div>",
    "<div role=navigation><p>Where to go</p></div>",
    "<div id=cookie-consent>We bake cookies.</div>",
    "<ul><li><a href=/c>Contact</a><li><a href=/d>Our team</a></ul>",
])  # fmt: skip
def test_the_frame_is_left_out_unless_it_is_in_the_main_text_or_all_there_is(frame):
    main = text_of(blocks_of(PROSE))
    assert text_of(without_frame(blocks_of(frame + PROSE), main)) == main
    framing = text_of(blocks_of(frame))
    assert text_of(without_frame(blocks_of(frame + PROSE), f"{main} {framing}")) == f"{framing}\n\n{main}"
    assert text_of(without_frame(blocks_of(frame), "")) == framing
    office = "<footer><p>The office is at Dock Street 4.<p>Imprint</footer>"
    assert text_of(without_frame(blocks_of(PROSE + office), main)) == f"{main}\n\nThe office is at Dock Street 4."


TAG_NAMES = "p div table tr td li ol ul dl dt dd a sup sub del pre nav b br input option x-y zz"
TAGS = st.sampled_from(TAG_NAMES.split())
PIECES = st.one_of(
    TAGS.map(lambda tag: f"<{tag}>"), TAGS.map(lambda tag: f"</{tag}>"), st.sampled_from(["w1", "w2 ", " w3", "&amp;", "< ", "\n"])
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_word_of_any_nesting_is_lost(page):
    text = text_of(blocks_of(page))
    plain = text.translate(str.maketrans("¹²³₁₂₃", "123123"))
    if "<del>" not in page:
        for word in ("w1", "w2", "w3"):
            assert plain.replace("^", "").replace("_", "").count(word) >= page.count(word)
