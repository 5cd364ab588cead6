"""kNN beside REALM's own encoder, as BERT-kNN does: keys are states at masks, values the wordpieces hidden there.

The encoder reads a sentence with one salient span hidden and the null document."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from realm.answering.cloze import ClozeText
from realm.documents.store.blocks import BlockStore
from realm.errors import DataError, RunError, SnapshotError
from realm.knn.datastore import BuildOptions, Datastore, DatastoreFacts, build_datastore, find_neighbours
from realm.knn.network import KeyTap, Network, States, Window, find_layer
from realm.knn.settings import Mixing, mixed_log_probs, token_probs
from realm.knn.windows import WindowSet
from realm.models.bodies.body import pad_batch
from realm.models.model import RealmModel
from realm.recipe import load_recipe
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.index.base import RowIndex
from realm.storage.decoding import json_lines
from realm.storage.files import array_sum
from realm.storage.paths import RunPaths

LONGEST_SPAN = 10
_CURE = 'Each line is {"text": "The capital of Norway is [MASK].", "target": "Oslo"}.'


class MaskedNetwork(Network):
    """The encoder of a REALM; a window's ids are a sentence without special tokens. Raises RunError: the model has no encoder."""

    kind = "masked"

    def __init__(self, model: RealmModel, inputs: BlockInputs, *, layer: str = "", name: str = ""):
        if not model.has("encoder"):
            cure = 'Use a run that was pre-trained with fill = "mlm", the default from nothing.'
            raise RunError("this model has no encoder that fills masks", cure=cure)
        self.encoder = self.module = model.encoder.eval()
        self.inputs, self.name = inputs, name
        self.layer = find_layer(self.encoder.body.model, layer)
        self.probe = Window(np.array([inputs.featurizer.mask] * 2), np.arange(1), np.zeros(1))

    @classmethod
    def open(cls, run: Path, *, layer: str = "", device: str = "cpu") -> "MaskedNetwork":
        """The encoder of a run. Raises RunError: no such run, or its pre-training has not ended."""
        paths = RunPaths(run)
        if not (paths.stage("pretrain") / "config.json").is_file():
            raise RunError("no pre-trained run here", path=run, cure="Make one with: realm run")
        model = RealmModel.from_pretrained(paths.stage("pretrain")).to(torch.device(device))
        query_length = load_recipe(paths.config).model.query_length
        return cls(model, open_inputs(paths.corpus, query_length), layer=layer, name=str(run))

    @property
    def tokenizer_sha256(self) -> str:
        return self.inputs.store.tokenizer.sha256

    @torch.inference_mode()
    def read(self, windows: Sequence[Window], *, log_probs: bool) -> States:
        """See Network.read: at the masks, with the null document."""
        device = next(self.encoder.parameters()).device
        batch = pad_batch([self.inputs.featurizer.joint(window.ids.tolist(), []) for window in windows], 0).to(device)
        with KeyTap(self.layer) as tap:
            states = self.encoder.body(batch)
            keys = tap.states(len(windows))
        row = torch.from_numpy(np.repeat(np.arange(len(windows)), [len(window.places) for window in windows])).to(device)
        place = torch.from_numpy(np.concatenate([window.places for window in windows])).long().to(device) + 1  # [CLS] stands first
        said = torch.log_softmax(self.encoder.logits(states[row, place]), -1) if log_probs else None
        return States(keys[row, place].float(), said)


def span_windows(inputs: BlockInputs) -> Iterator[tuple[int, Window]]:
    """Every live sentence with each of its salient spans hidden in turn, whole, and the row of its block."""
    store, mask, room = inputs.store, inputs.featurizer.mask, inputs.featurizer.query_length - 2
    for row in np.flatnonzero(store.live).tolist():
        spans, sentences, ids = store.spans(row), store.sentences(row), np.asarray(store.token_ids(row))
        for (start, end), sentence in zip(spans.tokens.tolist(), spans.sentence.tolist(), strict=True):
            first, last = sentences.tokens[sentence].tolist()
            if end - start > LONGEST_SPAN or end - first > room or end - start == last - first:
                continue
            read = ids[first : min(last, first + room)].astype(np.int32)
            places = np.arange(start - first, end - first, dtype=np.int32)
            hidden = read[places]
            read[places] = mask
            yield row, Window(read, places, hidden)


def build_from_run(directory: Path, network: MaskedNetwork, **how: Unpack[BuildOptions]) -> Datastore:
    """A datastore of the masked sentences of a run's corpus. Raises errors of ``build_datastore``."""
    store = network.inputs.store
    below = store.manifest.next_block_id
    read = {"skipped": 0, "corpus": store.manifest.corpus_id, "below": below, "blocks_sum": _blocks_sum(store, below)}
    return build_datastore(directory, network, WindowSet(window for _, window in span_windows(network.inputs)), read, **how)


def _blocks_sum(store: BlockStore, below: int) -> str:
    """Checksum of the live blocks whose ids are below a number."""
    ids = np.asarray(store.block_ids)[store.live]
    return array_sum(ids[ids < below].astype(np.int64))


def evaluate_clozes(path: Path, files: Sequence[Path], mixing: Mixing, *, model: str = "", device: str = "cpu") -> dict[str, Any]:
    """Filling of hidden spans with and without neighbours: {"n", "accuracy", "knn_accuracy", "log_p", "knn_log_p"}.

    A span is right if all its wordpieces are; log_p is a span's mean log-probability, None where one has none."""
    facts = DatastoreFacts.read(path)
    network = MaskedNetwork.open(Path(model or facts.model), layer=facts.layer, device=device)
    datastore = Datastore.open(path, network)
    read = datastore.facts.text
    if _blocks_sum(network.inputs.store, read["below"]) != read["blocks_sum"]:
        problem = "documents that it holds were removed from the corpus, or changed, since it was built"
        raise SnapshotError(problem, path=datastore.path, cure="Delete it and build it again: realm knn build RUN --out DATASTORE")
    index = datastore.index()
    rows = [fill(network, index, window, mixing) for file in files for window in cloze_windows(network.inputs, file)]
    without, right, plain, mixed = (np.array(column, float) for column in zip(*rows, strict=True))
    means = {"log_p": float(plain.mean()), "knn_log_p": float(mixed.mean()) if np.isfinite(mixed).all() else None}
    return {"n": len(rows), "accuracy": float(without.mean()), "knn_accuracy": float(right.mean()), **means}


def fill(network: MaskedNetwork, index: RowIndex, window: Window, mixing: Mixing) -> tuple[bool, bool, float, float]:
    """One hidden span: whether it is filled right without and with neighbours, and its log-probability without and with."""
    states = network.read([window], log_probs=True)
    assert states.log_probs is not None
    log_probs, wanted = states.log_probs.cpu(), torch.from_numpy(window.targets).long()
    neighbours = find_neighbours(index, states.keys, mixing.k)
    weights, a = mixing.weigh(neighbours, log_probs.amax(-1))
    mixed = mixed_log_probs(log_probs, token_probs(weights, torch.from_numpy(neighbours.tokens), log_probs.shape[1]), a)
    right = [bool((said.argmax(-1) == wanted).all()) for said in (log_probs, mixed)]
    sums = [float(said.gather(1, wanted[:, None]).double().sum()) for said in (log_probs, mixed)]
    return right[0], right[1], sums[0], sums[1]


def cloze_windows(inputs: BlockInputs, file: Path) -> list[Window]:
    """Windows of a JSONL file of sentences with one [MASK] for the whole target. Raises DataError: a row is malformed or unspellable."""
    windows = []
    for number, row in json_lines(file, _CURE):
        if not {"text", "target"} <= set(row):
            raise DataError("no sentence with a mask and a target", path=file, line=number, cure=_CURE)
        try:
            cloze = ClozeText(inputs, str(row["text"]))
            (spelled,) = cloze.spell([str(row["target"])])
        except DataError as error:
            raise DataError(error.problem, path=file, line=number, cure=error.cure) from error
        ids, places = cloze.masked([len(spelled)])
        windows.append(Window(np.array(ids, np.int32), np.array(places, np.int32), np.array(spelled, np.int32)))
    if not windows:
        raise DataError("no sentences", path=file, cure=_CURE)
    return windows
