"""Documents made to take time and memory: a build counts what is beyond the limits, and the document beside it is indexed."""

import json
import subprocess
import sys

import pytest
from hostile_documents import BYTES, HOSTILE

from realm.documents.ingest.builder import build_corpus
from realm.documents.records import TOO_MANY_EMPTY, TOO_MUCH_MEMORY
from realm.documents.store.blocks import BlockStore

for extra in ("docx", "pptx", "pypdfium2", "python_calamine", "striprtf", "trafilatura", "xlsxwriter"):
    pytest.importorskip(extra)
FEW = 30_000
SECONDS, MEMORY = 60, 1_400
"""Of processor time for a whole build of one hostile document, and MB of its largest process: tokenizer, tagger and libraries with it."""
BUILD = """
import json, re, resource, sys
from pathlib import Path
from realm.documents.ingest.builder import build_corpus
made = build_corpus([Path(sys.argv[1])], Path(sys.argv[2]), vocab_size=300, workers=1)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
own = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])  # ru_maxrss counts the process that started this one
seconds, most = sum(one.ru_utime + one.ru_stime for one in used), max(own, used[1].ru_maxrss)
print(json.dumps([made.documents, made.rejected, seconds, most // 1024]))
"""


def folder_of(place, *names, size):
    """A folder with hostile documents of one family and a good one."""
    place.mkdir()
    for name in names:
        (place / name).write_bytes(HOSTILE[name](size))
    (place / "good.md").write_text("The old weir was rebuilt.")
    return place


FOLDERS = 9
SMALL = {"far.xlsx": TOO_MUCH_MEMORY, "empty.jsonl.gz": TOO_MANY_EMPTY, "empty.csv.gz": TOO_MANY_EMPTY}


@pytest.mark.parametrize("number", range(FOLDERS))
def test_small_ones_are_taken_in_or_counted(tmp_path, number):
    names = list(HOSTILE)[number::FOLDERS]
    build_corpus([folder_of(tmp_path / "source", *names, size=FEW)], tmp_path / "corpus", vocab_size=300, workers=1)
    assert any("The old weir was rebuilt." in block for block in texts_of(tmp_path / "corpus"))
    rejected = [json.loads(line) for line in (tmp_path / "corpus" / "rejected.jsonl").read_text().splitlines()]
    said = BlockStore.open(tmp_path / "corpus").sources() | {one["path"] for one in rejected}
    assert [name for name in names if not any(name in path for path in said)] == []
    assert all((SMALL[name], True) in ((one["reason"], one["path"].endswith(name)) for one in rejected) for name in names if name in SMALL)


def texts_of(corpus):
    store = BlockStore.open(corpus)
    return [store.block(row).text for row in range(len(store))]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", HOSTILE)
def test_large_ones_stay_within_time_and_memory(tmp_path, name):
    folder = folder_of(tmp_path / "source", name, size=BYTES)
    command = [sys.executable, "-P", "-c", BUILD, str(folder), str(tmp_path / "corpus")]
    documents, rejected, seconds, most = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert documents > 0 and any("The old weir was rebuilt." in block for block in texts_of(tmp_path / "corpus"))
    assert documents > 1 or rejected, "read, or counted under a reason"
    assert seconds < SECONDS and most < MEMORY, (seconds, most)
