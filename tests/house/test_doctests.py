"""Examples in docstrings run, and print what they say; those that need a run have tests of their own."""

import doctest
import importlib
from pathlib import Path

import pytest

import realm

SOURCE = Path(realm.__file__).parent
NEED_A_RUN = {"realm.knn.datastore", "realm.runs.api", "realm.runs.run"}
NEED_A_RUN |= {f"realm.integrations.{framework}" for framework in ("dspy", "haystack", "langchain", "llama_index")}
EXAMPLES = {
    ".".join(("realm", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
}


@pytest.mark.parametrize("name", sorted(EXAMPLES - NEED_A_RUN))
def test_examples_print_what_they_say(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed
