"""The documentation names nothing that is not there: commands, make targets, recipe keys, modules, links; its Python examples run."""

import dataclasses
import functools
import inspect
import re
import shlex
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from realm.cli import groups, main, verbs
from realm.cli.arguments import overrides
from realm.recipe import Recipe, build_recipe

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
FILE_ENDINGS = {"log", "js", "json", "jsonl", "toml", "html", "txt", "npy", "md", "py", "safetensors"}
FOREIGN = {"psgs_w100.tsv", *(line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines())}
SPELLED = {**verbs.VERBS, **{f"{group} {name}": verb for group, members in groups.GROUPS.items() for name, verb in members.items()}}

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def fenced(path, language):
    return [body for kind, body in FENCE.findall(path.read_text("utf-8")) if kind == language]


def inline(path):
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", path.read_text("utf-8")))


def lines_of(path, word):
    """Whole command lines that begin with ``word``: in fenced blocks of a document, in the comments of a recipe."""
    if path.suffix == ".md":
        text = "\n".join(fenced(path, "") + fenced(path, "sh"))
    else:
        text = re.sub(r"^# +", "", path.read_text("utf-8"), flags=re.M)
    for line in re.sub(r"\\\n +", "", text).splitlines():  # a line that goes on in the next is one
        if line.startswith(f"{word} "):
            yield re.split(r"   +|  #", line)[0].strip()


@pytest.fixture
def parsed(monkeypatch):
    """The verbs that the real parser would have called, none of which runs."""
    called = []

    def stub(name, verb):
        @functools.wraps(verb)
        def instead(*_, **__):
            called.append(name)

        return instead

    monkeypatch.setattr(verbs, "VERBS", {name: stub(name, verb) for name, verb in verbs.VERBS.items()})
    members = {group: {name: stub(f"{group} {name}", verb) for name, verb in of.items()} for group, of in groups.GROUPS.items()}
    monkeypatch.setattr(groups, "GROUPS", members)
    return called


@pytest.mark.parametrize("path", DOCUMENTS + RECIPES, ids=lambda path: path.name)
def test_every_command_line_parses(path, parsed):
    for line in lines_of(path, "realm"):
        arguments = shlex.split(line)[1:]
        try:
            assert main(arguments) == 0
        except SystemExit as end:
            pytest.fail(f"{line}: does not parse ({end.code})")
        assert parsed and " ".join(arguments).startswith(parsed[-1])
        build_recipe({}, overrides=overrides(tuple([value for option, value in pairwise(arguments) if option == "--set"])))


def test_the_check_of_command_lines_bites(parsed):
    assert any(lines_of(ROOT / "README.md", "realm"))
    for wrong in (["server", "runs/mine"], ["eval", "runs/mine"], ["ask", "runs/mine", "x", "--depth", "3"], ["corpus", "shuffle", "c"]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert not parsed


@each_document
def test_every_verb_and_option_in_a_sentence_exists(path):
    """A command that is named in running text may lack its arguments; its verb and options are there."""
    for words in (text.split() for text in inline(path) if text.startswith("realm ")):
        verb = SPELLED.get(" ".join(words[1:3])) or SPELLED.get(words[1])
        assert verb is not None, " ".join(words)
        known = {f"--{name.replace('_', '-')}" for name in inspect.signature(verb).parameters}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, " ".join(words)


@each_document
def test_every_make_target_recipe_key_and_link_exists(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = [*lines_of(path, "make"), *(text for text in inline(path) if text.startswith("make "))]
    assert {line.split()[1] for line in named} <= targets
    sections = {field.name: {key.name for key in dataclasses.fields(getattr(Recipe(), field.name))} for field in dataclasses.fields(Recipe)}
    for text in inline(path):
        found = re.fullmatch(r"([a-z]+)\.([a-z_]+)(?: = .+)?", text)
        if found and found[1] in sections and found[2] not in FILE_ENDINGS:
            assert found[2] in sections[found[1]], text
    for block in fenced(path, "toml"):
        build_recipe(tomllib.loads(block))
    links = re.findall(r"\]\(([^)#]+)\)|<img src=\"([^\"]+)\"", path.read_text("utf-8"))
    links = [link or picture for link, picture in links]
    assert all((path.parent / link).exists() for link in links if "://" not in link), links


def defines(source, name):
    """Whether a module has a function, a class or a constant of this name."""
    return re.search(rf"\b(def|class) {name}\b|^{name}\b.* = ", source, re.M) is not None


def rows_of_the_table():
    """What one may want to change, and the places that the architecture names for it."""
    table = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("| to change | open |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(wish, re.findall(r"`([^`]+)`", places)) for wish, places in rows]


@pytest.mark.parametrize(("wish", "places"), rows_of_the_table(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_to_open_is_there(wish, places):
    """Each place is a file or a folder; ``file: name`` is defined in that very file."""
    assert places
    for place in places:
        file, _, name = place.partition(": ")
        found = [path for root in (ROOT / "src" / "realm", ROOT) if (path := root / file).exists()]
        assert found and found[0].is_dir() == file.endswith("/"), place
        assert not name or defines(found[0].read_text("utf-8"), name), place


def test_the_table_of_what_to_open_is_read():
    assert len(rows_of_the_table()) >= 15


@each_document
def test_every_module_and_name_exists(path):
    """`module.py: name` is defined there; any other `CamelCase` or `snake_case` word stands somewhere in the source."""
    source = {file.as_posix(): file.read_text("utf-8") for file in (ROOT / "src" / "realm").rglob("*.py")}
    tables = [file.read_text("utf-8") for file in (ROOT / "src" / "realm").rglob("*.toml")]
    words = {word for text in (*source.values(), *tables) for word in re.findall(r"\w+", text)}
    for text in inline(path):
        if found := re.fullmatch(r"([a-z_/]+\.py)(?:: ([\w.]+))?", text):
            modules = [body for file, body in source.items() if file.endswith(f"/{found[1]}")]
            if (other := ROOT / found[1]).is_file():  # a test, a benchmark
                modules.append(other.read_text("utf-8"))
            assert modules, text
            for name in found[2].split(".") if found[2] else ():
                assert any(defines(body, name) for body in modules), text
        elif re.fullmatch(r"\.?\w*(_\w|[a-z][A-Z])[\w.]*", text) and not text.startswith("__") and text not in FOREIGN:
            assert {word for word in text.split(".") if word} - FILE_ENDINGS <= words, text


def test_every_result_page_is_in_the_index_newest_first():
    results = ROOT / "benchmarks" / "results"
    listed = re.findall(r"\]\(([^)]+)\)", (results / "README.md").read_text("utf-8"))
    assert sorted(listed) == sorted(page.name for page in results.glob("*.md") if page.name != "README.md")
    days = [name[: len("2026-11-21")] for name in listed]
    assert days == sorted(days, reverse=True)


@pytest.fixture
def beside_the_run(tiny_run, tmp_path, monkeypatch):
    """The directory that the examples stand in: ``runs/mine``, documents and questions, under the names that the pages use."""
    shutil.copytree(tiny_run, tmp_path / "runs" / "mine")
    for source, name in (("more", "more"), ("docs", "docs"), ("qa_train", "qa_train"), ("qa", "qa_test")):
        shutil.copy(tiny_run.parent / f"{source}.jsonl", tmp_path / f"{name}.jsonl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


NEEDS_MORE = {"serving.md", "knn.md"}  # a server, a language model: tests/serve and tests/knn run the same calls


def python_examples():
    return [(path, example) for path in DOCUMENTS if path.name not in NEEDS_MORE for example in fenced(path, "python")]


@pytest.mark.parametrize(("path", "example"), python_examples(), ids=lambda value: value.name if isinstance(value, Path) else "")
def test_every_python_example_runs(path, example, beside_the_run):
    names = {}
    exec(compile(example, path.name, "exec"), names)
    if "answer" in names:
        assert names["answer"].evidence


@pytest.mark.parametrize("name", sorted(NEEDS_MORE))
def test_examples_that_need_more_import_what_is_there(name):
    for example in fenced(ROOT / "docs" / name, "python"):
        compile(example, name, "exec")
        exec("\n".join(line for line in example.splitlines() if line.startswith(("import ", "from "))), {})


def test_the_commands_of_two_tutorials_run(beside_the_run, capsys):
    """What one does with a run that is there: evaluate it, and change its documents. Training has tests of its own."""
    ran = 0
    for name in ("evaluate.md", "serve-and-update.md"):
        for line in lines_of(ROOT / "docs" / "tutorials" / name, "realm"):
            if not line.startswith("realm serve"):
                assert main(shlex.split(line)[1:]) == 0, line
                ran += 1
    assert ran >= 7 and "Novaria/0" not in capsys.readouterr().err
    assert len((beside_the_run / "answers.jsonl").read_text("utf-8").splitlines()) >= 2


def test_pages_and_changelog_are_no_longer_than_agreed():
    """Prose of all pages together, code blocks not counted: what only repeats the code goes."""
    pages = [FENCE.sub("", page.read_text("utf-8")) for page in (ROOT / "docs").rglob("*.md")]
    assert sum(len(re.findall(r"\S*\w\S*", page)) for page in pages) <= 17_188
    assert len((ROOT / "CHANGELOG.md").read_bytes()) <= 6_000
