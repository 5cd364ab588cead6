"""The architecture beside what import-linter and ruff check: circles, who may see config objects, what runs code when it loads."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import realm
from realm.models.bodies.known import present_directory

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(realm.__file__).parent
FORBIDDEN_FLAGS = {"allow_pickle", "trust_remote_code"}
ASKS_BEFORE_CODE = {"from_pretrained", "from_config", "SentenceTransformer"}
"""Calls that ask on standard input whether a model's own code may run, unless they are told."""
PICKLES = {"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list", "recv_object_list"}
"""Calls of torch.distributed that unpickle what another process sends."""
HOLD_NO_CODE = {"RealmModel", "TextTokenizer", "PreTrainedTokenizerFast"}
"""Classes whose ``from_pretrained`` reads no code: our own, and one of transformers that is named and not looked up."""
BELOW_RECIPES = ("documents", "models", "text", "storage")
WITHOUT_TORCH = ("answering", "cli", "documents", "models/runtime", "recipe", "search", "serve", "storage", "text")
"""Rooms whose modules load without torch, but for those that have gradients."""
HAVE_GRADIENTS = {"answering/explain.py", "answering/pointing.py", "search/relevance.py"}
HEAVY = {"torch", "transformers", "scipy", "pandas"}
POSIX = {"fcntl", "grp", "pwd", "resource", "termios"}  # modules that Windows has not
LATE = {"markdown_it", "charset_normalizer", "pyarrow.compute", "pydantic", "typeguard", "realm.documents.change.updates"}
BLOCKED = f"""
import sys
hidden = {sorted(HEAVY)}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
""".strip()
"""The start of a program in which these are not installed."""
ON_WINDOWS = f"""
import multiprocessing, os, subprocess, types
for name in {sorted(POSIX)}: hidden.append(name), sys.modules.pop(name, None)
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda *_: None)
opened = os.open
def files_alone(path, *how, **where):
    if os.path.isdir(path) and not where:
        raise PermissionError(13, "a directory", path)
    return opened(path, *how, **where)
os.open = files_alone
""".strip()
"""The same program as on Windows, as far as it can be had here: no modules of POSIX, and no directory is opened."""


def files(*roots: Path) -> list[Path]:
    return sorted(path for root in roots for path in root.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def unasked(call: ast.Call) -> bool:
    """Whether a call leaves open that a model's own code runs."""
    *owner, name = ast.unparse(call.func).split(".")
    told = "trust_remote_code" in {keyword.arg for keyword in call.keywords}
    return name in ASKS_BEFORE_CODE and not told and HOLD_NO_CODE.isdisjoint(owner)


def dangers(source: str) -> list[str]:
    """What a source file does that could run code from a file it loads, as "line: what", beside the imports that ruff bans."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and unasked(node):
            found.append(f"{node.lineno}: {ast.unparse(node.func)} without trust_remote_code")
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node).rpartition(".")[2] in PICKLES:
            found.append(f"{node.lineno}: {ast.unparse(node)} unpickles")
        if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_FLAGS:
            # only a literal False may be passed: a variable could be anything
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                found.append(f"{node.value.lineno}: passes {node.arg}")
        elif isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            found += [f"{node.lineno}: a dict with {flag}" for flag in sorted(keys & FORBIDDEN_FLAGS)]
    return found


def imported_modules() -> dict[str, set[str]]:
    """What each module of the package imports of it: at its top, inside functions, or for types alone."""
    modules = {
        ".".join(("realm", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path for path in files(SOURCE)
    }

    def owner(name: str) -> str:
        while name not in modules:
            name = name.rpartition(".")[0]
        return name

    graph = {}
    for module, path in modules.items():
        names = {name for _, name in imports(ast.parse(path.read_text("utf-8"))) if name.partition(".")[0] == "realm"}
        graph[module] = {owner(name) for name in names} - {module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of nodes, larger than one, in which each leads to each other."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, waiting = set(), [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[start] = seen
    found = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph if node in reached[node]}
    return sorted(sorted(circle) for circle in found)


def test_no_modules_import_each_other() -> None:
    lazy: dict[str, set[str]] = {"realm": set()}  # the public names of realm/__init__.py are imported when they are asked for
    assert circles(imported_modules() | lazy) == []


def test_who_watches_pretraining_does_not_see_its_task() -> None:
    inside = "realm.training.pretrain"
    seeing = {module for module, found in imported_modules().items() if f"{inside}.task" in found and module.startswith(inside)}
    assert seeing == {f"{inside}.stage"}


def loaded_at_once(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports at its top."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name for _, name in imports(node))


def test_rooms_that_answer_load_without_torch() -> None:
    guilty = {
        path.relative_to(SOURCE).as_posix()
        for path in files(*(SOURCE / room for room in WITHOUT_TORCH))
        if {name.partition(".")[0] for name in loaded_at_once(ast.parse(path.read_text("utf-8")))} & HEAVY
    }
    assert guilty == HAVE_GRADIENTS


def test_a_question_is_answered_without_torch(tmp_path: Path) -> None:
    if present_directory("realm-minilm-en") is None:
        pytest.skip("the released model's body is not here")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bridge.txt").write_text("The Harrow bridge was built in 1874 by Ellen Marsh, an engineer from Leeds.\n")
    asked = ["ask", str(tmp_path / "notes"), "Who built the Harrow bridge?"]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for where, then in ((ON_WINDOWS, "import realm.serve.server"), ("", f"late = {LATE} & set(sys.modules); assert not late, late")):
        code = f"{BLOCKED}\n{where}\nfrom realm.cli import main; assert main({asked}) == 0; {then}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout.count("Ellen Marsh  p = 0.") == 1, done.stdout + done.stderr
    left = [path.name for path in (tmp_path / "cache").iterdir()]
    assert left == ["realm"]  # nor has ONNX Runtime written what it would report to its maker


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g", "a"}, "g": {"f"}}
    assert circles(graph) == [["a", "b", "c"], ["f", "g"]]


def test_below_the_recipes_nobody_sees_config_objects() -> None:
    guilty = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in files(SOURCE)
        if path.relative_to(SOURCE).with_suffix("").parts[0] in BELOW_RECIPES
        for line, name in imports(ast.parse(path.read_text("utf-8")))
        if name.startswith("realm.recipe") and not name.startswith("realm.recipe.values")
    ]
    assert not guilty


WEIGHTS_ONLY = SOURCE / "models" / "tensor_files.py"
"""The one file that reads others' pytorch_model.bin, through torch's weights-only unpickler."""


def test_nothing_loads_code() -> None:
    sources = {path: path.read_text("utf-8") for path in files(SOURCE, ROOT / "benchmarks", ROOT / "released")}
    assert not [(path, danger) for path, source in sources.items() for danger in dangers(source)]
    assert [path for path, source in sources.items() if "noqa: TID251" in source or "noqa: S3" in source] == [WEIGHTS_ONLY]


def test_the_one_unpickling_takes_weights_only() -> None:
    calls = [node for node in ast.walk(ast.parse(WEIGHTS_ONLY.read_text("utf-8"))) if isinstance(node, ast.Call)]
    (load,) = [call for call in calls if ast.unparse(call.func) == "torch.load"]
    assert {"weights_only": "True", "map_location": "'cpu'"}.items() <= {k.arg: ast.unparse(k.value) for k in load.keywords}.items()


@pytest.mark.parametrize(("source", "dangerous"), [
    ("np.load(path, allow_pickle=True)", True), ("np.load(path, allow_pickle=flag)", True), ("np.load(path, allow_pickle=False)", False),
    ("AutoModel.from_pretrained(x, trust_remote_code=True)", True), ("AutoModel.from_pretrained(x)", True),
    ("family.from_config(x, dtype=None)", True), ("sentence_transformers.SentenceTransformer(x)", True),
    ("f(**{'trust_remote_code': True})", True), ("RealmModel.from_pretrained(x)", False), ("'allow_pickle'", False),
    ("dist.all_gather_object(found, value)", True), ("dist.broadcast_object_list(said, 0)", True), ("dist.all_gather(rows, row)", False),
])  # fmt: skip
def test_the_scan_tells_danger(source: str, dangerous: bool) -> None:
    assert bool(dangers(source)) == dangerous
