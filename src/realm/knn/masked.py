"""kNN beside REALM's own encoder, as BERT-kNN does: keys are states at masks, values the wordpieces hidden there.

The encoder reads a sentence with one salient span hidden and the null document; what it would fill in is mixed with what stood under the
masks of the nearest sentences of the corpus.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from realm.config import load_recipe
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs, open_inputs
from realm.data.cloze import ClozeText
from realm.data.featurize import pad_batch
from realm.decoding import json_value
from realm.errors import DataError, RunError, SnapshotError
from realm.index.base import RowIndex
from realm.knn.building import DatastoreOptions, build_datastore, ensure_windows
from realm.knn.datastore import Datastore, find_neighbours, read_facts
from realm.knn.network import KeyTap, Network, States, find_layer
from realm.knn.settings import Mixing, mixed_log_probs, token_probs
from realm.knn.windows import Window
from realm.nn.model import RealmModel
from realm.paths import RunPaths
from realm.storage.sums import array_sum
from realm.text.files import open_text

LONGEST_SPAN = 10
CURE = 'Each line is {"text": "The capital of Norway is [MASK].", "target": "Oslo"}.'


class MaskedNetwork(Network):
    """The encoder of a REALM. A window's ids are a sentence without special tokens.

    Raises:
        RunError: the model has no encoder.
        ConfigError: no such layer.
    """

    kind = "masked"

    def __init__(self, model: RealmModel, inputs: BlockInputs, *, layer: str = "", name: str = ""):
        if not model.has("encoder"):
            raise RunError(
                "this model has no encoder that fills masks",
                cure='Use a run that was pre-trained with fill = "mlm", the default from nothing.',
            )
        self.encoder = self.module = model.encoder.eval()
        self.inputs = inputs
        self.name = name
        body: Any = self.encoder.body.model
        self.layer = find_layer(body, layer)
        self.vocab_size = self.encoder.body.spec.vocabulary
        self.probe = Window(np.array([inputs.featurizer.mask] * 2), np.arange(1), np.zeros(1))

    @classmethod
    def open(cls, run: Path, *, layer: str = "", device: str = "cpu") -> "MaskedNetwork":
        """The encoder of a run whose pre-training has ended.

        Raises:
            RunError: no such run, or its pre-training has not ended.
            CorpusError: it has no usable corpus.
            ConfigError: its config.toml is damaged.
        """
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


def build_from_run(directory: Path, network: MaskedNetwork, **how: Unpack[DatastoreOptions]) -> Datastore:
    """A datastore of the masked sentences of a run's corpus. Raises what ``build_datastore`` does."""
    store = network.inputs.store
    made_from = {"model": network.sha256, "corpus": store.manifest.corpus_id, "version": store.manifest.version}
    hidden = (window for _, window in span_windows(network.inputs))
    read = {"below": store.manifest.next_block_id, "blocks_sum": _blocks_sum(store, store.manifest.next_block_id)}
    windows = partial(ensure_windows, directory, made_from, hidden, lambda: {"skipped": 0, "read": read})
    return build_datastore(directory, network, windows, **how)


def _blocks_sum(store: BlockStore, below: int) -> str:
    """Tells the live blocks whose ids are below a number."""
    ids = np.asarray(store.block_ids)[store.live]
    return array_sum(ids[ids < below].astype(np.int64))


def check_nothing_removed(datastore: Datastore, network: MaskedNetwork) -> None:
    """Refuse a datastore that holds sentences of documents which the corpus no longer has. Added ones are only not in it.

    Raises:
        SnapshotError: since it was built documents were removed or changed; or an earlier version built it, of another corpus version.
    """
    store, facts = network.inputs.store, datastore.windows.facts
    if (read := facts.get("read")) is not None:
        gone = _blocks_sum(store, int(read["below"])) != read["blocks_sum"]
    else:
        gone = facts.get("made_from", {}).get("version") != store.version
    if gone:
        problem = "documents that it holds were removed from the corpus, or changed, since it was built"
        raise SnapshotError(problem, path=datastore.path, cure="Delete it and build it again: realm knn build RUN --out DATASTORE")


def evaluate_clozes(
    path: Path, files: Sequence[Path], mixing: Mixing, *, model: str = "", kind: str = "auto", device: str = "cpu"
) -> dict[str, Any]:
    """How well hidden spans are filled, with and without neighbours: {"n", "accuracy", "knn_accuracy", "log_p", "knn_log_p", "settings"}.

    A span is right when each of its masks gets its wordpiece; log_p is the mean log-probability of a span, None where one has none.

    Args:
        model: the run, if it is no longer where the datastore found it.

    Raises:
        SnapshotError: no usable datastore, one of another run, or one that holds what the corpus no longer has.
        DataError: see ``cloze_windows``.
    """
    facts = read_facts(path)
    network = MaskedNetwork.open(Path(model or facts.model), layer=facts.layer, device=device)
    datastore = Datastore.open(path, network)
    check_nothing_removed(datastore, network)
    index = datastore.index(kind, mixing.metric)
    rows = [fill(network, index, window, mixing) for file in files for window in cloze_windows(network.inputs, file)]
    without, right, plain, mixed = (np.array(column, float) for column in zip(*rows, strict=True))
    means = {"log_p": float(plain.mean()), "knn_log_p": float(mixed.mean()) if np.isfinite(mixed).all() else None}
    return {"datastore": str(path), "n": len(rows), "accuracy": float(without.mean()), "knn_accuracy": float(right.mean()), **means}


def fill(
    network: MaskedNetwork, index: RowIndex, window: Window, mixing: Mixing, exclude: np.ndarray | None = None
) -> tuple[bool, bool, float, float]:
    """One hidden span: whether it is filled right without and with neighbours, and its log-probability without and with.

    Args:
        exclude: int64, numbers of wanted tokens that must not be neighbours.
    """
    states = network.read([window], log_probs=True)
    assert states.log_probs is not None
    log_probs, wanted = states.log_probs.cpu(), torch.from_numpy(window.targets).long()
    hidden = None if exclude is None else [exclude] * len(wanted)
    neighbours = find_neighbours(index, states.keys, mixing.k, hidden)
    weights, a = mixing.weigh(neighbours, log_probs.amax(-1))
    mixed = mixed_log_probs(log_probs, token_probs(weights, torch.from_numpy(neighbours.tokens), log_probs.shape[1]), a)
    right = [bool((said.argmax(-1) == wanted).all()) for said in (log_probs, mixed)]
    sums = [float(said.gather(1, wanted[:, None]).double().sum()) for said in (log_probs, mixed)]
    return right[0], right[1], sums[0], sums[1]


def cloze_windows(inputs: BlockInputs, file: Path) -> list[Window]:
    """One window for each line of a JSONL file of sentences with one [MASK], which stands for the whole target.

    Raises:
        DataError: a row is malformed, or its target cannot be spelled; the message names file and line.
    """
    windows = []
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json_value(line)
                text, target = row["text"], row["target"]
                cloze = ClozeText(inputs, str(text))
                (spelled,) = cloze.spell([str(target)])
                ids, places = cloze.masked([len(spelled)])
            except (ValueError, KeyError, TypeError):
                raise DataError("no sentence with a mask and a target", path=file, line=number, cure=CURE) from None
            except DataError as error:
                raise DataError(error.problem, path=file, line=number, cure=error.cure) from error
            windows.append(Window(np.array(ids, np.int32), np.array(places, np.int32), np.array(spelled, np.int32)))
    if not windows:
        raise DataError("no sentences", path=file, cure=CURE)
    return windows
