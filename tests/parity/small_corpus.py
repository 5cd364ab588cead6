"""A corpus of a few blocks with the embeddings of the published side: what open-domain question answering here needs."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from cases import vocabulary
from tokenizers.implementations import BertWordPieceTokenizer
from torch import Tensor

from realm.answering.pointing import read_candidates
from realm.documents.ingest.builder import build_corpus
from realm.evaluation.places import locate_answers
from realm.models import losses
from realm.models.model import RealmModel, state_sha256
from realm.models.reader import SpanScores
from realm.models.types import Question
from realm.recipe import FinetuneConfig, Recipe
from realm.search.blocks import open_inputs
from realm.search.candidates import DenseCandidates
from realm.search.index.exact import ExactIndex
from realm.search.publishing.snapshot import Snapshot, SnapshotFacts
from realm.search.publishing.writing import publish_snapshot
from realm.storage.layout import RunPaths
from realm.storage.metrics import MetricsLog
from realm.text.tokenizer import TextTokenizer
from realm.training.beams import Beam, LiveSource
from realm.training.context import StageContext
from realm.training.finetune.task import ReadingTask

BEAM, READ = 6, 3
Rows = tuple[tuple[str, str], ...]
Questions = tuple[tuple[str, tuple[str, ...]], ...]


def bert_tokenizer(words: list[str]) -> TextTokenizer:
    """An uncased BERT tokenizer of a list of wordpieces."""
    return TextTokenizer(BertWordPieceTokenizer(vocab={word: i for i, word in enumerate(words)}, lowercase=True)._tokenizer)


class SmallCorpus:
    """One block for each of ``rows`` (title and text), in their order, and their published embeddings [n, d]."""

    def __init__(self, root: Path, rows: Rows, block_emb: Tensor):
        self.root = root
        documents = [{"id": str(i), "title": title, "text": text} for i, (title, text) in enumerate(rows)]
        (root / "blocks.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents), "utf-8")
        paths = RunPaths(root)
        build_corpus([root / "blocks.jsonl"], paths.corpus, tokenizer=bert_tokenizer(vocabulary()), block_length=64)
        self.inputs = open_inputs(paths.corpus, 32)
        store = self.inputs.store
        assert [store.block(row).doc_id for row in range(len(store))] == [document["id"] for document in documents]
        self.vectors = block_emb.float().numpy()

    def embed(self, model: RealmModel) -> Tensor:
        """The blocks by our embedder, titles and segments included, in the model's precision. [n, d]"""
        with torch.no_grad():
            return model.documents(self.inputs.blocks(range(len(self.inputs.store))))

    def source(self, model: RealmModel) -> LiveSource:
        """The question side over the published embeddings."""
        store, directory = self.inputs.store, self.root / "index"
        facts = {"corpus_id": store.manifest.corpus_id, "tokenizer_sha256": store.manifest.tokenizer_sha256}
        facts |= {"document_embedder_sha256": state_sha256(model.documents)}
        ids = np.asarray(store.block_ids)
        if not directory.exists():
            said = SnapshotFacts(params_generation=1, step=0, corpus_version=store.version, **facts)
            publish_snapshot(directory, lambda done: [self.vectors[done:]], ids, said)
        snapshot = Snapshot.open(directory, **facts)
        over = DenseCandidates(model.embedder, snapshot, ExactIndex(snapshot.vectors, snapshot.block_ids), self.inputs)
        return LiveSource(over, model.embedder)

    def task(self, model: RealmModel, questions: Questions) -> ReadingTask:
        """Fine-tuning as a run does it, every question in one batch."""
        section = FinetuneConfig(batch=len(questions), beam=BEAM, read=READ, rename_rate=0.0)
        log = MetricsLog(self.root / "metrics.jsonl")
        context = StageContext(RunPaths(self.root), Recipe(finetune=section), self.inputs, torch.device("cpu"), log, lambda *row: None)
        records = [Question(str(i), text, answers) for i, (text, answers) in enumerate(questions)]
        return ReadingTask("finetune", context, self.source(model), model.reader, records, [])

    def task_loss(self, model: RealmModel, questions: Questions) -> Tensor:
        """Mean loss of all questions."""
        return self.task(model, questions).step(0).mean

    @torch.no_grad()
    def losses(self, model: RealmModel, questions: Questions) -> Iterator[dict[str, Tensor]]:
        """Both losses of each question alone, and which blocks of the wide beam hold an answer."""
        source = self.source(model)
        for text, answers in questions:
            ids = self.inputs.store.tokenizer.encode([text])
            wide = source([text], ids, BEAM)
            (spans_of,) = locate_answers(self.inputs.store, [Question("", text, answers)])
            correct, read = torch.from_numpy(np.isin(wide.rows, list(spans_of))), Beam(wide.rows[:, :READ], wide.scores[:, :READ])
            spans = read_candidates(model.reader, self.inputs, ids, read.rows, read.scores)
            gold = torch.zeros_like(spans.valid)
            for j, row in enumerate(read.rows[0].tolist()):
                for start, end in spans_of.get(row, []):
                    if end - start <= model.reader.max_span:
                        gold[0, j, start, end - start - 1] = True
            retriever_loss, _ = losses.retriever_marginal(wide.scores, correct, wide.valid)
            reader_loss, _ = losses.span_marginal(spans.logits.flatten(1), gold.flatten(1), spans.valid.flatten(1))
            parts = {"retriever_loss": retriever_loss[0], "reader_loss": reader_loss[0], "found": correct[0].long()}
            yield {"loss": (retriever_loss + reader_loss)[0], **parts}

    @torch.no_grad()
    def best(self, model: RealmModel, questions: Questions) -> Iterator[dict[str, Tensor]]:
        """The best span of each question, all read in one batch: the place of its block, and its wordpieces."""
        texts = [text for text, _ in questions]
        ids = self.inputs.store.tokenizer.encode(texts)
        found = self.source(model)(texts, ids, READ)
        scores = read_candidates(model.reader, self.inputs, ids, found.rows, found.scores)
        for i in range(len(texts)):
            block, start, width = best_span(scores.of(i))
            answer = self.inputs.store.token_ids(int(found.rows[i, block]))[start : start + width + 1]
            yield {"block": torch.tensor([block]), "answer_ids": torch.from_numpy(answer.astype(np.int64))}


def best_span(scores: SpanScores) -> tuple[int, int, int]:
    """Block, start and width - 1 of the best valid span of [k, t, w]."""
    place = scores.logits.masked_fill(~scores.valid, float("-inf")).argmax()
    block, start, width = (int(i) for i in torch.unravel_index(place, scores.logits.shape))
    return block, start, width
