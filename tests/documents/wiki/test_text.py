"""Wikitext to prose: each kind of markup by hand, a careful slow cleaning on real pages. Hostile input: ``test_wikitext_hostile``."""

import importlib
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from realm.documents.wiki.dump import WikiPage, iter_pages, why_left_out
from realm.documents.wiki.names import Namespaces, is_disambiguation, is_list, is_redirect
from realm.documents.wiki.text import DEPTH, BracketWriter, clean_wikitext, pair_brackets

MARKS = ("{{", "}}", "[[", "]]", "{|", "|}", "'''", "<ref")


@pytest.mark.parametrize(("wikitext", "prose"), [
    # Links
    ("A [[cat]] and [[dog|two dogs]].", "A cat and two dogs."),
    ("[[bus]]es, [[Foo (bar)|]], [[:Category:Birds]], [[Mercury#Orbit|its orbit]]", "buses, Foo, Category:Birds, its orbit"),
    ("[[2001: A Space Odyssey]] and [[wikt:cat|cat]]", "2001: A Space Odyssey and cat"),
    ("x[[Category:Birds|thumb]] [[fr:Oiseau]] [[zh-min-nan:Chiáu]]", "x"),
    ("[[Datei:a.jpg|mini|Bild]]a [[Fichier:b.png]]b [[Файл:c.png|мини]]c [[ファイル:d.jpg]]d", "a b c d\n\nBild"),
    # Captions, behind the paragraph that their picture stands in
    ("[[File:a.jpg|thumb|A [[cat]] by [http://x.org me]]] Text.", "Text.\n\nA cat by me"),
    ("[[a|b [http://x.org c]]] [[d]]]", "b c d]"), ("[[File:a.svg|20px|Flag]] Oslo", "Oslo"),
    ("It is [[File:a.jpg|right|alt=A = b|THUMB|upright=1.2|The weir<br>in {{circa|1931}}|9px]]old.", "It is old.\n\nThe weir in c. 1931"),
    ("[[ملف:a.jpg|تصغير|يمين|200بك]]x", "x"),
    ("one\n[[File:a.jpg|frame|links|A weir<ref>x</ref>]]\ntwo", "one\n\nA weir\n\ntwo"), ("[[File:a.jpg|thumb|right]]x", "x"),
    ("== A ==\n[[Bild:a.jpg|miniatur|x20px|Wehr]]\n== B ==\n== C ==\n* d[[Image:e.jpg|thumb|E]]", "A\n\nWehr\n\nC\n\nd\n\nE"),
    ("{|\n| b || [[File:a.jpg|thumb|The [[weir|wall]]]] c\n|}", "b | c\n\nThe wall"),
    ("[[ファイル:a.jpg|サムネイル|右|堰]]a [[Файл:b.png|мини|слева|Плотина]]", "a\n\n堰\n\nПлотина"),
    ("<gallery a=b>\nFile:a.jpg|b\nImage:c.jpg|alt=d|The [[e|f]], ''g''\nh.jpg\n<!-- i -->\n</gallery>x", "b\n\nThe f, g\n\nx"),
    (
        "{{multiple image|image1=a.jpg|caption1=A [[cat]]|caption_align=left|footer=Two<br>cats}}x {{Gallery|b.jpg|B}}",
        "x\n\nA cat\n\nTwo cats\n\nB",
    ),
    ("a\n== Gallery ==\n<gallery>\na.jpg|b\n</gallery>\n== Notes ==\nx", "a\n\nGallery\n\nb"),
    ("See [http://x.org the site], [https://y.org] and http://z.org now.", "See the site, and http://z.org now."),
    # Emphasis
    ("'''Bold''' ''italic'' '''''both'''''", "Bold italic both"), ("L'''amour'' is '''big'''", "L'amour is big"),
    ("''Eagle''{{'s}} orbit", "Eagle's orbit"), ("'''{{nothing}}''' is", "is"),
    # Elements
    ("One.<ref>Smith {{cite|a=b}} [[x]]</ref> Two.<ref name=a /> Three.<!-- no\n\nno --> Four.", "One. Two. Three. Four."),
    ("A<ref name=b> forgot the slash.<ref>c</ref> B.", "A forgot the slash. B."),
    ("A <nowiki>[[not a link]] '' {x}</nowiki> b", "A not a link '' {x} b"),
    ("a <pre>[[code]]</pre> b <syntaxhighlight lang=c>int x[[1]];</syntaxhighlight> c <source>{{</source> d", "a b c d"),
    ("where <math>x + 1</math> is, <math>\\frac{a}{b}</math> not", "where x + 1 is, not"), ("<gallery>\n</gallery>x", "x"),
    ("H<sub>2</sub>O<br />next <small>one</small> <span style='a'>b</span>", "H2O next one b"),
    ("10<sup>6</sup> m<sup>2</sup>, 20<sub>[[hexadecimal|16]]</sub> hex, Na<sup>+</sup>, 1<sup>st</sup>", "10⁶ m², 20₁₆ hex, Na⁺, 1st"),
    ("the angle ''θ''<sub>''i''</sub> here", "the angle θi here"),
    ("A (named {{IPA|x}}, or {{y}}, , b), c {{z}}, d", "A (named, or, b), c, d"),
    ("It is older\n.<ref>a</ref>\n\n{{cite|b}}. First of all, it\n, which is", "It is older.\n\nFirst of all, it, which is"),
    ("<div>\nIn a box.\n</div>After.", "In a box.\n\nAfter."), ("a < b and <c> stay", "a < b and <c> stay"),
    ("unclosed <!-- comment", "unclosed"),
    # Entities
    ("10&nbsp;km &ndash; &amp;lt; &#123;&#123;x", "10 km – &lt; x"),
    # Templates
    ("{{Box|a={{b|{{c}}}}|d=[[e|f]]}}Text {{citation needed|date=May}}here.", "Text here."),
    ("{{Infobox\n| built = 1901\n| a =\n|logo=b\n| leader_title = Mayor\n| leader_name = [[Ida]]\n}}x", "built: 1901\nMayor: Ida\n\nx"),
    ("{{Infobox x\n|image=a.jpg\n|image_caption=The weir\n}}y", "image caption: The weir\n\ny"),
    ("{{taxobox|label1=Sort|data1=A<br>B|seat=\n* Ulm\n* Oslo|photo=c.jpg}}", "Sort: A, B\nseat: Ulm, Oslo"),
    ("It is {{convert|10|km|mi}} long, {{convert|5|to|7|kg}}, {{convert|5|ft|6|in|m}}.", "It is 10 km long, 5 to 7 kg, 5 ft 6 in."),
    ("{{lang|fr|[[chat|Le chat]]}} {{lang-de|Katze}} {{nowrap|1 2}} {{abbr|CIA|Agency}}", "Le chat Katze 1 2 CIA"),
    ("{{as of|2012|5}} and {{start date|2001|5|6}}, {{start date|2001|5|6|mf=yes}}", "As of May 2012 and 6 May 2001, May 6, 2001"),
    ("né le {{date de naissance|11|novembre|1866}} au {{XXe siècle}}, {{unité|892|km|2}}", "né le 11 novembre 1866 au XXe siècle, 892 km²"),
    ("{{frac|1|2}} {{formatnum:1234567}} {{uc:abc}} {{c.|1850}} {{HMS|Victory}}", "1/2 1,234,567 ABC c. 1850 HMS Victory"),
    (
        "It is 1{{sfrac|1|4}} or {{frac|1|4}} wide, Otton {{Ier}}, au {{s-|XIX}} et {{s|XI|e}}",
        "It is 1 1/4 or 1/4 wide, Otton Ier, au XIXe siècle et XIe siècle",
    ),
    ("at {{Coord|13|19|N|169|9|W|type:event}}, in the sea; {{coord|1|N|2|E|display=title}}", "at 13°19′N 169°9′W, in the sea;"),
    ("{{coord|51.5|-0.12|display=inline,title}}\n\nText.\n\n{{coord|51|30|N|0|7|W}}", "Text."),
    ("を{{仮リンク|ベルリン法|en|Berlin Act}}に、{{link-de|边境总督|Markgraf}}", "をベルリン法に、边境总督"),
    ("{{Carbon}}<sub>''n''</sub>{{Hydrogen}}<sub>2</sub>, {{bibleref|Mark|3:25|9}}, ({{Höhe|115|DE-NHN}})", "CnH2, Mark 3:25, (115 m)"),
    ("* {{FRO}} (DEN)\n* {{KIA}}{{USA}} {{USA|a=b}}", "FRO (DEN)\nUSA"),
    ("a{{snd}}b{{!}}c {{quote|1=Long live the king.}}", "a – b|c Long live the king."),
    ("Anarchism ({{IPA|x}}; {{lang|el|ana}}) is ({{IPA|y}}) old ({{IPA|z}}, {{pron}}).", "Anarchism (ana) is old."),
    ("{{{1|default}}}x {{{{{a}}}}}y", "x y"),
    # Tables
    ("before\n{| class=a\n! h\n|-\n| c || [[d]]\n|}\nafter", "before\n\nh\nc | d\n\nafter"),
    ("{|\n| outer\n{|\n| inner\n|}\n| more\n|}\nafter", "outer inner | more\n\nafter"), ("{|\n| {{x|\n|}}\n|}\nafter", "after"),
    ("a\n{{box|\n{|\n|b\n|}}}\nc", "a\n\nc"), ("<table><tr><td>x</td></tr></table>y", "x\n\ny"),
    ("{|\n|+ O\n! N !! M\n|-\n| rowspan=2 | A || 19\n|-\n| 20\n|-\n| || a=9 | C\n* d<br>e\n|}", "O\nN | M\nA | 19\nA | 20\n| C d e"),
    ("{| class=navbox\n| x\n|}y <TABLE border=1><tr><th>Town<th>Mayor<tr><td colspan=2>Velm</table>", "y\n\nTown | Mayor\nVelm |"),
    ("{|\n| never closed\n|-\n| row\n\nText after.", "Text after."),
    # Lists, headings, paragraphs
    ("* one\n** two\n# three\n: four\n; five : six", "one\ntwo\n1. three\nfour\nfive : six"),
    ("# one\n## in\n# two\n\n# one <del>9</del><s>8</s>7", "1. one\n1. in\n2. two\n\n1. one 7"),
    ("{{plainlist|\n* Ida\n* Per\n}}\n{{ubl|Ann|Bo}}", "Ida\nPer\n\nAnn, Bo"),
    ("one\ntwo\n\nthree\n----\nfour", "one two\n\nthree\n\nfour"),
    ("== A ==\n=== B ===\ntext\n== Empty ==\n== C ==\nmore", "A\n\nB\n\ntext\n\nC\n\nmore"),
    ("a\n==References==\nx\n===Notes===\ny\n== Next ==\nz", "a\n\nNext\n\nz"), ("a\n== Einzelnachweise ==\nx", "a"),
    ("a\n== Véase también ==\n* x", "a"), ("__NOTOC__\n__FORCETOC__a", "a"),
    # Variants
    ("-{zh-hans:计算机; zh-hant:電腦}- 和 -{字}- -{T|x}-", "计算机 和 字"),
    # Unbalanced
    ("a [[b c", "a b c"), ("a {{b [[c]] d", "a b c d"), ("a ]] b }} c", "a b c"), ("[[a {{b]] c}} d", "a d"), ("x {{a|[[b}} y", "x y"),
])  # fmt: skip
def test_markup(wikitext, prose):
    assert clean_wikitext(wikitext) == prose


def test_names_and_numbers_are_those_of_the_wiki():
    assert clean_wikitext("[[Resym:a.jpg|x]]a [[Trubo:b]] [[Bk:about|c]]", Namespaces({6: "Resym", 14: "Trubo", 4: "Bk"})) == "a c"
    assert clean_wikitext("{{formatnum:1234567}}") == "1,234,567"
    assert clean_wikitext("{{formatnum:1234567}}", Namespaces({14: "Catégorie"})) == "1234567"
    assert clean_wikitext("'''{{PAGENAME}}''' is a city.", title="Dong Hoi") == "Dong Hoi is a city."


def test_what_is_left_out():
    namespaces = Namespaces({14: "Kategorie"})
    assert is_disambiguation("Berlin", "x {{disambig}}", namespaces)
    assert is_disambiguation("Berlin", "x\n{{Begriffsklärung}}", namespaces)
    assert is_disambiguation("Berlin", "x\n[[Kategorie:Begriffsklärung]]", namespaces)
    assert is_disambiguation("Berlin (disambiguation)", "", namespaces)
    assert not is_disambiguation("Berlin", "{{Infobox}} [[Kategorie:Stadt]] disambiguation", namespaces)
    assert all(map(is_list, ["List of rivers", "Liste der Flüsse", "Список рек", "ベルリンの区一覧", "Lists of lists"]))
    assert not any(map(is_list, ["Listeria", "Franz Liszt", "Listen (song)"]))
    assert is_redirect("#REDIRECT [[a]]") and is_redirect(" #weiterleitung: [[a]]") and not is_redirect("# one [[a]]")


# A bracket for each kind of opener and closer, and what could confuse them.
_PIECES = [
    "{{", "}}", "[[", "]]", "\n{|", "\n|}", "{{{", "}}}", "|", "'''", "''", "<ref>", "</ref>", "<!--", "-->", "<nowiki>", "</nowiki>",
]  # fmt: skip
_PIECES += [
    "\n== a ==\n", "\n* ", "a", "b c.", "&lt;ref", "&#91;&#91;", "[http://x ", "]", "[", "{", "-{", "}-", "File:x|",
    "lang|fr|", "nowrap|", "(",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join))
def test_no_markup_is_left_whatever_the_input(wikitext):
    prose = clean_wikitext(wikitext)
    assert not [mark for mark in MARKS if mark in prose]


@given(st.lists(st.sampled_from(["{{", "}}", "[[", "]]", "\n{|", "\n|}", "x", "|"]), max_size=30).map("".join))
def test_pairs_nest(wikitext):
    """The fast pairing's pairs never cross, and each is opened and closed by its own kind."""
    spans, closers = pair_brackets(wikitext), {"{{": "}}", "[[": "]]", "{|": "|}"}
    for at, span in enumerate(spans):
        assert wikitext[span.open : span.start].strip().startswith(span.kind)
        assert wikitext[span.stop : span.close].strip().endswith(closers[span.kind])
        for later in spans[at + 1 :]:
            assert later.open >= span.close or later.close <= span.stop


@pytest.fixture(scope="module")
def reference():
    """The careful cleaning of the benchmark, which needs mwparserfromhell."""
    pytest.importorskip("mwparserfromhell")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[3]))
        return importlib.import_module("benchmarks.documents.bench_wikitext")


def test_sentences_of_a_careful_cleaning_survive(reference, data_dir):
    total = kept = 0
    for number, (site, page) in enumerate(iter_pages(data_dir / "dumps" / "enwiki-2013-shortened-pages-articles.xml.bz2")):
        namespaces = Namespaces(site.namespaces)
        if number % 12 or not isinstance(page, WikiPage) or why_left_out(page, namespaces):
            continue
        ours = " ".join(clean_wikitext(page.text, namespaces, page.title).split())
        sentences = reference.prose_sentences(reference.careful_cleaning(page.text, namespaces))
        total, kept = total + len(sentences), kept + sum(sentence in ours for sentence in sentences)
    assert total > 500
    assert kept >= 0.99 * total


HOSTILE = {
    "open templates": lambda n: "{{" * n, "open links": lambda n: "[[" * n, "open tables": lambda n: "\n{|" * n,
    "nested templates": lambda n: "{{nowrap|" * n + "}}" * n, "nested links": lambda n: "[[a|" * n + "]]" * n,
    "nested tables": lambda n: "\n{|" * n + "\n|}" * n,
    "links in an open template": lambda n: "{{" + "[[" * n + "\n|}" * n, "closers": lambda n: "}}]]\n|}" * n,
    "open references": lambda n: "<ref>" * n + "</ref>", "references without end": lambda n: "<ref name=" * n,
    "comments": lambda n: "<!--" * n, "mixed elements": lambda n: "<ref><nowiki><math><gallery>" * (n // 4),
    "external links": lambda n: "[http:" * n, "variants": lambda n: "-{" * n, "tags": lambda n: "<a " * n,
    "captions": lambda n: "[[File:a|thumb|" * n + "]]" * n, "galleries": lambda n: "<gallery>" * n + "a|b\n" * (n // 8) + "</gallery>",
    "quotes": lambda n: "''a" * n, "one run of quotes": lambda n: "'" * n, "hollow brackets": lambda n: "( " * n,
    "separators in brackets": lambda n: "(" + " ," * n, "separators": lambda n: "(a" + " ," * n + "b",
    "headings": lambda n: "\n" + "=" * n + " " * n + "x", "empty headings": lambda n: "\n== a ==" * n,
    "entities": lambda n: "&amp" * n, "category openers": lambda n: "[[ " * n, "switches": lambda n: "__A" * n,
}  # fmt: skip


@pytest.mark.parametrize("shape", HOSTILE)
def test_time_is_linear_on_hostile_text(shape):
    """Whether the work is in lines of ours or in a pattern's own loop: linear, it is seconds; quadratic, minutes."""
    text, begun = HOSTILE[shape](500_000), time.process_time()
    prose = clean_wikitext(text)
    assert time.process_time() - begun < 20
    assert not [mark for mark in MARKS if mark in prose]


@pytest.mark.parametrize("shape", ["nested templates", "nested links", "nested tables", "open templates"])
def test_no_character_is_copied_more_often_than_the_depth_allows(shape):
    text = HOSTILE[shape](5_000)
    writer = BracketWriter(text, lambda name: str, lambda target: str)
    writer.render()
    assert writer.copied <= (DEPTH + 1) * len(text)
