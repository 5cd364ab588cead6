"""A small corpus with twins: the same sentences in several documents."""

from pathlib import Path

import pytest
from small import corpus_of, features

from realm.documents.store.blocks import BlockStore
from realm.models.featurize import Featurizer
from realm.search.blocks import BlockInputs

SHARED = "The pound sterling is the money of the United Kingdom."
DOCUMENTS = [
    ("uk", "United Kingdom", f"The kingdom has four parts. {SHARED} Its largest city is London."),
    ("pound", "Pound sterling", f"{SHARED} It is divided into one hundred pence. The Bank of England prints it since 1694."),
    ("france", "France", "The capital of France is Paris. The euro is the money of France. Victor Hugo was born in Besançon in 1802."),
    ("london", "London", "London stands on the Thames. The Great Fire of London was in 1666. Paris and London are linked by train."),
    ("one", "One sentence", "The river Thames flows through London to the North Sea."),
]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus_of(tmp_path_factory.mktemp("corpus"), DOCUMENTS, vocab_size=400)


@pytest.fixture(scope="session")
def store(corpus: Path) -> BlockStore:
    return BlockStore.open(corpus)


@pytest.fixture(scope="session")
def featurizer(store: BlockStore) -> Featurizer:
    return features(store)


@pytest.fixture(scope="session")
def inputs(store: BlockStore, featurizer: Featurizer) -> BlockInputs:
    return BlockInputs(store, featurizer)
