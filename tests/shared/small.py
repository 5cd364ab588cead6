"""Small corpora of tests, and harm to files."""

import json

import pyarrow as pa
from safetensors.numpy import save_file

from realm.documents.ingest.builder import build_corpus
from realm.documents.spans.collocations import CollocationCounts
from realm.documents.spans.truecase import CasingCounts
from realm.models.featurize import Featurizer
from realm.models.runtime.weights import in_eight_bits


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def tree(root):
    """The bytes of every file below but locks, by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name[:4] != "LOCK"}


def arrow_rows(corpus):
    """Every row of the segments of the version in force, by the manifest and pyarrow alone."""
    manifest = json.loads((corpus / f"manifest-{int((corpus / 'CURRENT').read_text().split()[0]):06d}.json").read_text())
    files = [str(corpus / "segments" / info["name"]) for info in manifest["segments"]]
    return [row for file in files for row in pa.ipc.open_file(file).read_all().to_pylist()]


def corpus_of(root, documents, **options):
    """``root/corpus`` of documents, (id, title, text) each."""
    rows = [{"id": name, "title": title, "text": text} for name, title, text in documents]
    build_corpus([jsonl(root / "docs.jsonl", rows)], root / "corpus", **options)
    return root / "corpus"


def flip(path, at=-3, bit=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def write_rounded(state, path):
    stored, metadata = in_eight_bits({name: value.detach().float().numpy() for name, value in state.items()})
    save_file(stored, path, metadata)


def features(store, query_length=64):
    """Inputs over the wordpieces of a corpus."""
    special = store.tokenizer.special
    return Featurizer(special.cls, special.sep, special.mask, special.pad, query_length=query_length)


def as_sentence_model(directory, width, pooling="mean_tokens", *more):
    """What sentence-transformers writes beside a body."""
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": width, f"pooling_mode_{pooling}": True}))
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *((kind, f"2_{kind}") for kind in more)]
    modules = [{"idx": n, "path": path, "type": f"sentence_transformers.models.{kind}"} for n, (kind, path) in enumerate(kinds)]
    (directory / "modules.json").write_text(json.dumps(modules))
    return directory


def learned_from(plan, sentences):
    """The tagger of a plan, with letter case and terms as these sentences have them."""
    casing, collocations = CasingCounts(), CollocationCounts()
    casing.add(sentences)
    collocations.add(sentences)
    return plan.tagger(casing, collocations)
