"""Recipes: preset < file < flags; whatever does not fit is one line that names the file and a cure."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, strategies as st

from realm.errors import ConfigError
from realm.recipe import Recipe, build_recipe, dump_recipe, load_recipe, preset_names


def write(directory, text):
    path = directory / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def refused(path):
    """The error of loading ``path``, checked to be one line that names it."""
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"{path}: ")
    return caught.value


def test_presets_are_the_known_sizes_tiny_by_default():
    models = {name: build_recipe({"model": {"preset": name}}).model for name in preset_names()}
    assert all(m.preset == name and m.hidden % m.heads == 0 and m.intermediate == 4 * m.hidden for name, m in models.items())
    assert {name: (m.layers, m.hidden) for name, m in models.items()} == {
        "tiny": (2, 128),
        "mini": (4, 256),
        "small": (4, 512),
        "base": (12, 768),
    }
    assert build_recipe({}) == build_recipe({"model": {"preset": "tiny"}}) == Recipe()


def test_preset_below_file_below_flags(tmp_path):
    path = write(tmp_path, '[model]\npreset = "small"\nhidden = 256\nlayers = 3\n[ict]\nsteps = 7\n')
    recipe = load_recipe(path, {"model": {"layers": 5}, "run": {"seed": 3}})
    assert (recipe.model.hidden, recipe.model.layers, recipe.model.heads) == (256, 5, 8)
    assert (recipe.ict.steps, recipe.run.seed) == (7, 3)
    assert load_recipe(path, {"model": {"preset": "base", "hidden": 768}}).model.intermediate == 3072
    assert load_recipe(path).model.layers == 3


def test_every_field_has_a_docstring():
    import ast
    import inspect

    import realm.recipe.sections

    for node in ast.walk(ast.parse(inspect.getsource(realm.recipe.sections))):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            assert ast.get_docstring(node)
            for field, after in zip(node.body[1::2], node.body[2::2], strict=True):
                assert isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name), node.name
                assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), f"{node.name}.{field.target.id}"


@pytest.mark.parametrize(("text", "problem", "cure"), [
    ("[modle]\nhidden = 3\n", "unknown section 'modle'", "'model'"), ("seed = 3\n", "unknown section 'seed'", "Known: run, corpus"),
    ("[ict]\nstep = 3\n", "unknown key in [ict] 'step'", "'steps'"), ("[ict]\nqqq = 3\n", "unknown key in [ict] 'qqq'", "Known: steps"),
    ('[model]\npreset = "huge"\n', "no preset 'huge'", "base, mini, small, tiny"),
    ("[model]\npreset = []\n", "no preset", "base, mini, small, tiny"), ("model = 3\n", "'model' is not a section", "[model]"),
    ('[ict]\nsteps = "many"\n', "'ict.steps' cannot be 'many'", "a whole number"),
    ("[ict]\nsteps = 3.5\n", "'ict.steps' cannot be 3.5", "a whole number"),
    ("[ict]\nsteps = true\n", "'ict.steps' cannot be True", "a whole number"),
    ("[ict]\nlr = true\n", "'ict.lr' cannot be True", "a number"), ("[ict]\nlr = nan\n", "'ict.lr' cannot be nan", "a number"),
    ("[ict]\nlr = inf\n", "'ict.lr' cannot be inf", "a number"), ("[run]\nbf16 = 1\n", "'run.bf16' cannot be 1", "true or false"),
    ('[corpus]\nsources = "docs"\n', "'corpus.sources' cannot be 'docs'", "a list"),
    ("[corpus]\nsources = [3]\n", "'corpus.sources' cannot be [3]", "a list"),
    ("[eval]\nk = [true]\n", "'eval.k' cannot be [True]", "a list"), ("[eval]\nk = [0]\n", "'eval.k'", "at least 1"),
    ("[eval]\nk = []\n", "'eval.k'", "at least 1"),
    ('[index]\nkind = "hnsw"\n', "'index.kind' cannot be 'hnsw'", "auto, exact, compressed"),
    ('[run]\ndevice = "tpu"\n', "'run.device' cannot be 'tpu'", "auto, cpu, cuda"),
    ('[model]\npooling = "max"\n', "'model.pooling' cannot be 'max'", "pooler, cls, mean"),
    ('[pretrain]\nmarginal = "both"\n', "'pretrain.marginal' cannot be 'both'", "token, joint"),
    ('[pretrain]\nmasking = "words"\n', "'pretrain.masking' cannot be 'words'", "salient"),
    ('[pretrain]\nsentences = "news.jsonl"\n', "'pretrain.sentences' cannot be 'news.jsonl'", "a list"),
    ('[finetune]\npreset = "none"\n', "'finetune.preset' cannot be 'none'", "few-shot"),
    ('[finetune]\npassages = "soft"\n', "'finetune.passages' cannot be 'soft'", "given"),
    ('[finetune]\nevidence = "none"\n', "'finetune.evidence' cannot be 'none'", "named"),
    ('[finetune]\npublish = "first"\n', "'finetune.publish' cannot be 'first'", "best"),
    ("[pretrain]\ncandidates = 1\n", "'pretrain.candidates' is 1", "at least 2"),
    ("[corpus]\nvocab_size = 100\n", "'corpus.vocab_size' is 100", "at least 200"),
    ("[ict]\nsteps = -1\n", "[ict] needs steps >= 0", ""), ("[ict]\nlr = 0\n", "lr > 0", ""),
    ("[ict]\nwarmup = -1\n", "'ict.warmup' is -1", "at least 0"), ("[pretrain]\nshown = 1.5\n", "'pretrain.shown' is 1.5", "0 and 1"),
    ("[model]\ndropout = -0.1\n", "'model.dropout' is -0.1", "0 and 1"),
    ("[model]\nspan_hidden = -1\n", "'model.span_hidden' is -1", "at least"),
    ('[write]\nurl = "http://a/v1"\n', "[write] needs both", "Give both"),
    ("[model]\nhidden = 130\nheads = 4\n", "multiple of 'model.heads'", ""),
    ('[finetune]\ntrain = "a"\nbeam = 2\nread = 5\n', "'finetune.beam' is smaller", "best of the beam"), ("[model\n", "not TOML", ""),
])  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, text, problem, cure):
    error = refused(write(tmp_path, text))
    assert problem in str(error) and cure in str(error)
    if cure:
        assert error.cure is not None and cure in error.cure


LM = {"fill": "lm", "language_model": "x"}
STAYS = {"fill": "pointer", "masking": "recurring", "reader": "frozen"}


@pytest.mark.parametrize(("sections", "said"), [
    ({"pretrain": {"fill": "lm"}}, "language_model"), ({"pretrain": {"language_model": "x"}}, "language_model"),
    ({"pretrain": LM | {"retriever_rate": 0.0}}, "retriever_rate"), ({"pretrain": LM | {"reader": "frozen"}}, "pretrain.reader"),
    ({"pretrain": LM | {"reader_first": 2}}, "points"), ({"pretrain": {"fill": "pointer", "masking": "tokens"}}, "point"),
    ({"pretrain": {"reader_first": 3}}, "point"), ({"pretrain": {"own_block": 0.5}}, "point"),
    ({"pretrain": {"fill": "pointer", "own_block": 0.5}}, "own_block' is given, and"),
    ({"pretrain": {"fill": "pointer", "own_block": 0.5, "reader_first": 2, "sentences": ("news",)}}, "own_block' is given, and"),
    ({"pretrain": STAYS | {"fill": "mlm"}}, "pretrain.reader"), ({"pretrain": STAYS | {"reader_first": 4}}, "pretrain.reader"),
    ({"pretrain": STAYS | {"retriever_rate": 0.0}}, "pretrain.reader"), ({"pretrain": {"from_warm": False}}, "from_warm' is false"),
    ({"pretrain": {"publish": "best", "held_out": 0}}, "'pretrain.publish' is 'best' and 'pretrain.held_out' is 0"),
    ({"run": {"accumulate": 3}, "ict": {"batch": 4}, "warm": {"batch": 3}, "pretrain": {"batch": 3}, "finetune": {"batch": 3}},
     "'ict.batch' is 4, not a multiple of run.accumulate = 3"),
    ({"finetune": {"train": "q.jsonl", "passages": "given", "seq2seq": "somewhere"}}, "finetune.passages"),
    ({"model": {"projection": 0}}, "'model.projection' cannot be"),
    ({"model": {"body": "minilm", "projection": 5}}, "'model.projection' cannot be"),
])  # fmt: skip
def test_choices_that_exclude_each_other(sections, said):
    with pytest.raises(ConfigError, match=said):
        build_recipe(sections)


def test_missing_and_unreadable_files(tmp_path):
    assert "no such recipe" in str(refused(tmp_path / "none.toml"))
    assert "cannot be read" in str(refused(tmp_path))
    binary = tmp_path / "latin.toml"
    binary.write_bytes(b"[run]\nseed = 3 # caf\xe9\n")
    assert "not TOML" in str(refused(binary))


def test_a_wrong_flag_is_named_too(tmp_path):
    path = write(tmp_path, "")
    with pytest.raises(ConfigError, match=r"unknown key in \[ict\] 'stepz'.*'steps'"):
        load_recipe(path, {"ict": {"stepz": 3}})
    with pytest.raises(ConfigError, match="no preset 'huge'"):
        build_recipe({"model": {"preset": "huge"}})


def test_integers_serve_as_floats_and_lists_as_tuples():
    recipe = build_recipe({"ict": {"lr": 1}, "eval": {"k": [1, 2]}, "corpus": {"sources": ["a", "b"]}})
    assert isinstance(recipe.ict.lr, float) and recipe.eval.k == (1, 2) and recipe.corpus.sources == ("a", "b")


def test_relative_paths_count_from_the_recipe(tmp_path):
    (tmp_path / "recipes").mkdir()
    text = '[corpus]\nsources = ["../docs", "/abs/docs"]\n[finetune]\ntrain = "qa/train.jsonl"\n[eval]\nqa = "~/test.jsonl"\n'
    recipe, base = load_recipe(write(tmp_path / "recipes", text)), tmp_path.resolve()
    assert recipe.corpus.sources == (str(base / "docs"), "/abs/docs")
    assert recipe.finetune.train == str(base / "recipes" / "qa" / "train.jsonl") and recipe.finetune.dev == ""
    assert recipe.eval.qa == str((Path.home() / "test.jsonl").resolve()) and recipe.corpus.gazetteer == ""


def test_one_question_file_or_several(tmp_path):
    assert load_recipe(write(tmp_path, "")).eval_files == ()
    one = load_recipe(write(tmp_path, '[eval]\nqa = "a.jsonl"\n'))
    assert one.eval.qa == str(tmp_path.resolve() / "a.jsonl") and one.eval_files == (one.eval.qa,)
    several = load_recipe(write(tmp_path, '[eval]\nqa = ["a.jsonl", "b/c.csv"]\n'))
    assert several.eval_files == (str(tmp_path.resolve() / "a.jsonl"), str(tmp_path.resolve() / "b" / "c.csv"))
    assert build_recipe(tomllib.loads(dump_recipe(several))) == several
    taught = load_recipe(write(tmp_path, '[finetune]\ntrain = ["a.jsonl", "b.jsonl"]\ndev = []\npublish = "best"\npatience = 2\n'))
    assert taught.train_files == taught.finetune.train == tuple(str(tmp_path.resolve() / name) for name in ("a.jsonl", "b.jsonl"))
    assert taught.dev_files == () and build_recipe(tomllib.loads(dump_recipe(taught))) == taught
    assert load_recipe(write(tmp_path, '[finetune]\ntrain = []\ndev = [""]\n')).dev_files == ()
    with pytest.raises(ConfigError, match=r"no dev to watch"):
        load_recipe(write(tmp_path, '[finetune]\ntrain = ["a.jsonl"]\ndev = []\npatience = 2\n'))
    with pytest.raises(ConfigError, match=r"'finetune.train' cannot be \['a', 3\]"):
        load_recipe(write(tmp_path, '[finetune]\ntrain = ["a", 3]\n'))
    with pytest.raises(ConfigError, match=r"'eval.qa' cannot be \[3\]"):
        load_recipe(write(tmp_path, "[eval]\nqa = [3]\n"))
    with pytest.raises(ConfigError, match=r"'eval.qa' cannot be True"):
        load_recipe(write(tmp_path, "[eval]\nqa = true\n"))


def test_answers_read_as_many_blocks_as_fine_tuning_unless_told(tmp_path):
    assert load_recipe(write(tmp_path, "[finetune]\nread = 2\n")).read == 2
    assert load_recipe(write(tmp_path, "[finetune]\nread = 2\n[eval]\nread = 7\n")).read == 7


def test_dump_and_load_give_the_same_recipe(tmp_path):
    text = '[model]\npreset = "mini"\n[corpus]\nsources = ["a b", "ü\\"q"]\n[ict]\nlr = 1e-5\n[pretrain]\nmarginal = "joint"\n'
    recipe = load_recipe(write(tmp_path, text))
    (tmp_path / "run").mkdir()
    assert load_recipe(write(tmp_path / "run", dump_recipe(recipe))) == recipe
    assert set(tomllib.loads(dump_recipe(recipe))) == {f.name for f in dataclasses.fields(Recipe)}


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(1e-300, 1e300),
    st.integers(-(2**62), 2**62),
    st.lists(st.integers(1, 2**31), min_size=1),
)
def test_any_value_survives_the_round_trip(text, lr, seed, k):
    recipe = build_recipe({"corpus": {"tokenizer": text}, "ict": {"lr": lr}, "run": {"seed": seed}, "eval": {"k": k}})
    assert build_recipe(tomllib.loads(dump_recipe(recipe))) == recipe


def test_what_presets_learn_later_changes_no_run(tmp_path):
    """A run's own config.toml states all keys of its time: one that is missing had its default then, whatever a preset says of it today."""
    recipe = build_recipe({"model": {"body": "minilm"}, "pretrain": {"fill": "pointer", "steps": 1000}})
    stated = tomllib.loads(dump_recipe(recipe))
    assert stated["pretrain"].pop("documents") == "frozen" and stated["finetune"].pop("evidence") == "named"
    (tmp_path / "config.toml").write_text(tomli_w.dumps(stated), "utf-8")
    assert load_recipe(tmp_path / "config.toml").pretrain.documents == "frozen", "a recipe of that name is completed"
    (tmp_path / "run.json").write_text("{}", "utf-8")
    run = load_recipe(tmp_path / "config.toml")
    assert (run.pretrain.documents, run.finetune.evidence) == ("trained", "anywhere")
    assert run.pretrain.own_block == recipe.pretrain.own_block, "what is stated stays"


RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))


def test_there_are_recipes():
    known = {"own-documents.toml", "from-nothing.toml", "squad-small.toml", "squad-compare.toml", "simplewiki-compare.toml"}
    assert known <= {path.name for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_parses_and_is_not_measured_on_what_it_is_fitted_to(path):
    recipe = load_recipe(path)
    assert recipe.corpus.sources and ((recipe.finetune.train and recipe.eval_files) or recipe.pretrain.steps == 0)
    named = (*recipe.corpus.sources, *recipe.train_files, *recipe.dev_files, *recipe.eval_files)
    assert all(Path(name).is_absolute() for name in named if name), "paths count from the recipe's file"
    assert build_recipe(tomllib.loads(dump_recipe(recipe))) == recipe
    assert not set(recipe.dev_files) & {*recipe.train_files, *recipe.eval_files} and not set(recipe.train_files) & set(recipe.eval_files)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_the_commented_keys_exist(path):
    """`# key = value` in a recipe is an offer: taking it must not end in an error."""
    lines = path.read_text("utf-8").splitlines()
    offered = [line.removeprefix("# ") if line.startswith("# ") and line[2:].split(" = ")[0].isidentifier() else line for line in lines]
    values = tomllib.loads("\n".join(offered))
    recipe = build_recipe(values, path=path)
    assert all(hasattr(getattr(recipe, section), key) for section, keys in values.items() for key in keys)
