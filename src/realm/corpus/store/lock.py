"""One writer of a corpus at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from realm.errors import CorpusError
from realm.storage.locks import held


@contextmanager
def writer_lock(corpus: Path) -> Iterator[None]:
    """Hold the corpus for writing; wait a while for another writer. Raises CorpusError: another process is still writing."""

    def busy(named: str) -> CorpusError:
        return CorpusError(f"another process{named} is changing this corpus", path=corpus, cure="Try again when it has ended")

    with held(corpus, busy):
        yield
