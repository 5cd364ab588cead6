"""Links and renames across devices: what is shared by links is copied instead, and all else is one line."""

import errno
import os

import numpy as np

from realm.documents.store.blocks import BlockStore
from realm.search.sparse import open_sparse


def far(*arguments, **options):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(arguments[0]))


def test_sparse_search_is_made_anew_where_it_cannot_be_linked(tiny_run, tmp_path, monkeypatch):
    store = BlockStore.open(tiny_run / "corpus")
    ids = np.asarray(store.block_ids)
    for number in (1, 2):
        (tmp_path / f"{number:06d}").mkdir()
    first = open_sparse(tmp_path, 1, ids, store)
    monkeypatch.setattr(os, "link", far)
    found = [index.search(["the currency of Arvad"], 3) for index in (first, open_sparse(tmp_path, 2, ids, store))]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
    assert not list(tmp_path.rglob("*.staging"))
