"""A trained run that nobody else uses, its corpus and its networks."""

import shutil
from pathlib import Path

import pytest

from realm.models.model import RealmModel
from realm.search.blocks import open_inputs
from realm.storage.layout import RunPaths


@pytest.fixture
def run(tiny_run, tmp_path):
    return RunPaths(Path(shutil.copytree(tiny_run, tmp_path / "run")))


@pytest.fixture
def inputs(run):
    return open_inputs(run.corpus, 32)


@pytest.fixture
def model(run):
    return RealmModel.from_pretrained(run.stage("pretrain"))
