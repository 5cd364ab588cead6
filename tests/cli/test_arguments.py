"""Options wherever they stand among the places and the question."""

import pytest

from realm.cli import groups, main, verbs
from realm.cli.arguments import options_first


@pytest.mark.parametrize(("name", "given", "ordered"), [
    ("ask", "docs --k 5 Who?", "--k 5 docs Who?"),
    ("ask", "docs --json more --abstain_below=0.2 Who?", "--json --abstain_below=0.2 docs more Who?"),
    ("explain", "run --target a text --target b", "--target a --target b run text"),
    ("ask", "docs --k", "docs --k"),
    ("ask", "docs --depth 3 Who?", "docs --depth 3 Who?"),
    ("ask", "docs -h", "docs -h"),
    ("refresh", "run --ray host:1 --once", "run --ray host:1 --once"),
    ("eval", "run --k 1 5 --qa q", "run --k 1 5 --qa q"),
])  # fmt: skip
def test_options_come_first(name, given, ordered):
    assert options_first(verbs.VERBS[name], given.split()) == ordered.split()


def test_every_verb_keeps_its_words():
    for verb in [*verbs.VERBS.values(), *(verb for members in groups.GROUPS.values() for verb in members.values())]:
        assert options_first(verb, ["a", "b"]) == ["a", "b"]


def test_a_question_after_an_option_is_answered(tiny_run, capsys):
    assert main(["ask", str(tiny_run), "--k", "2", "What is the currency of Arvad?"]) == 0
    assert "What is the currency of Arvad?" in capsys.readouterr().out
