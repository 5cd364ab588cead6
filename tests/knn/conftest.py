"""Models of seconds, their text, and a datastore of each."""

import pytest
import torch
from knn_models import OPTIONS, WORDS, write_models
from small import jsonl

from realm.knn.datastore import build_from_texts
from realm.knn.network import load_network


@pytest.fixture(scope="session")
def text_files(tmp_path_factory):
    root, draw = tmp_path_factory.mktemp("knn-texts"), torch.Generator().manual_seed(5)

    def sentence(length):
        return " ".join(WORDS[int(i)] for i in torch.randint(len(WORDS), (length,), generator=draw))

    for name, count in (("docs", 30), ("held_out", 6)):
        jsonl(root / f"{name}.jsonl", [{"id": str(i), "title": "", "text": sentence(3 + (i * 7) % 50)} for i in range(count)])
    jsonl(root / "pairs.jsonl", [{"en": sentence(3 + i % 9), "de": sentence(2 + i % 7)} for i in range(60)])
    return root


@pytest.fixture(scope="session")
def model_directories(tmp_path_factory):
    """Kind -> directory of a model with random weights."""
    root = tmp_path_factory.mktemp("knn-models")
    write_models(root)
    return {"causal": root / "causal", "translation": root / "translation"}


@pytest.fixture(params=["causal", "translation"])
def kind(request):
    return str(request.param)


@pytest.fixture(scope="session")
def networks(model_directories):
    return {kind: load_network(directory) for kind, directory in model_directories.items()}


@pytest.fixture(scope="session")
def source_of(text_files):
    return {"causal": text_files / "docs.jsonl", "translation": text_files / "pairs.jsonl"}


@pytest.fixture(scope="session")
def built(tmp_path_factory, networks, source_of):
    """A finished datastore of each kind and dtype; nobody changes it."""
    root = tmp_path_factory.mktemp("knn-built")

    def build(kind, dtype="float32"):
        return build_from_texts(root / f"{kind}-{dtype}", networks[kind], [source_of[kind]], OPTIONS, dtype=dtype)

    return build


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr("realm.knn.windows.PART_ROWS", 100)
