"""Tests stand where the rooms are: a test file has the name and the folder of the module that it is about."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src" / "realm"
SEVERAL_ROOMS = {"browser", "damage", "end_to_end", "faults", "house", "parity", "shared"}
"""Folders of tests that are about no single module."""
EXCEPTIONS = {
    "cli/test_cli.py": "every verb and option",
    "documents/ingest/test_properties.py": "files that an ingest writes, read by pyarrow alone",
    "documents/pages/test_hostile.py": "damaged bytes for every reader of documents",
    "knn/test_knn_cli.py": "the verbs of kNN, over its own corpora and models",
    "models/test_golden.py": "parity with the published classes, module by module",
    "runs/test_bad_models.py": "models of strangers, through every way to read one",
    "runs/test_hub.py": "models handed on through the hub",
    "runs/test_published_values.py": "values that were published with the models",
    "storage/test_storage.py": "arrays, manifests, locks and generations together",
}


def mirrors(file):
    """Whether a module, or a folder of modules, has the name of a test file of the same folder."""
    module = SOURCE / file.parent / file.stem.removeprefix("test_")
    return module.is_dir() or module.with_suffix(".py").is_file()


def test_files_are_named_after_their_modules():
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strays = {str(file) for file in files if file.parts[0] not in SEVERAL_ROOMS and not mirrors(file)}
    assert strays == set(EXCEPTIONS), strays ^ set(EXCEPTIONS)
