"""Open a run to ask it: corpus, index, embedders and reader, checked to belong together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from realm.answering.answerer import Answerer
from realm.answering.body_models import answering_model, body_model, reading_model
from realm.answering.generative import StageReader, load_reader, own_reader
from realm.answering.levels import leveled
from realm.answering.records import Answer, Explanation, Hit
from realm.documents.store.blocks import Block
from realm.errors import ConfigError, RunError, SnapshotError, by_torch, is_blank
from realm.models.runtime.model import RuntimeModel, learning_model, load_model
from realm.models.spec import ReaderSpec, read_spec
from realm.recipe import Recipe, load_recipe
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.candidates import DenseCandidates, HybridCandidates, Searching, make_source
from realm.search.publishing.embedding import EmbedOptions
from realm.search.publishing.generation import Generation, open_generation
from realm.search.publishing.refresher import add_difference, missing_rows
from realm.search.retriever import HybridSearch
from realm.storage.generations import read_current
from realm.storage.layout import CLEAR, RunPaths, has_stage, require_run, stage_facts

if TYPE_CHECKING:
    from realm.models.model import RealmModel


def hit(block: Block, score: float) -> Hit:
    """A block as a search result."""
    return Hit(block.doc_id, block.block_id, block.title, block.text, score, block.media, block.heading())


def read_run_recipe(paths: RunPaths) -> Recipe:
    """Resolved recipe of a run directory. Raises RunError: no run is there, or one of another version."""
    require_run(paths)
    return load_recipe(paths.config)


def open_run(root: str | Path, *, device: str = "cpu") -> "OpenRun":
    """Open a run directory whose pre-training has ended, with its networks on ``device``.

    Raises RunError: no run, another version, or pre-training has not ended. Raises CorpusError, SnapshotError: tokenizer, corpus, index and
    document embedder do not belong together."""
    paths = RunPaths(Path(root))
    recipe = read_run_recipe(paths)
    if paths.wrapped.exists():
        inputs = open_inputs(paths.corpus, recipe.model.query_length)
        return wrap_body(paths, recipe, inputs, answering_model(recipe, inputs))
    facts = stage_facts(paths, "pretrain")
    networks = Networks(paths, device, recipe.run.bf16)
    if has_stage(paths, "finetune"):
        facts = stage_facts(paths, "finetune")
        networks.tuned = load_model(paths.stage("finetune"), device)
    inputs = open_inputs(paths.corpus, recipe.model.query_length)
    sha, load = None if networks.tuned is None else networks.tuned.documents_sha256(), partial(load_model, device=device)
    generation = open_generation(paths, inputs, facts["generation"], document_embedder_sha256=sha, device=device, load=load)
    if recipe.pretrain.queries_alone:  # the index is of before they learnt
        generation = replace(generation, query_embedder=networks.first.embedder)
    return OpenRun(paths, recipe, inputs, generation, networks)


def wrap_body(paths: RunPaths, recipe: Recipe, inputs: BlockInputs, model: "RuntimeModel | RealmModel") -> "OpenRun":
    """Open a cached folder's documents under its body (``answering_model``), without a stage. Raises SnapshotError: no valid index."""
    try:
        generation = open_generation(paths, inputs, read_current(paths.index), model=model)
    except SnapshotError as error:  # no stage is there to build it again from
        raise SnapshotError(error.problem, path=error.path, cure=CLEAR) from error.__cause__ or error
    networks = Networks(paths, "cpu", recipe.run.bf16, None, model, partial(body_model, recipe, inputs))
    return OpenRun(paths, recipe, inputs, generation, networks)


@dataclass
class Networks:
    """Networks of a run's stages: each is loaded once, when first used, and stays, whatever becomes of the stage on disk."""

    paths: RunPaths
    device: str
    bf16: bool  # read in bfloat16 if the hardware multiplies it
    tuned: "RuntimeModel | RealmModel | None" = None  # None if the run ended after pre-training
    body: "RuntimeModel | RealmModel | None" = None  # networks of a cached folder, without a stage; None in a run
    body_by_torch: "Callable[[], RealmModel] | None" = None
    other: StageReader | None = None  # reads in place of the run's own reader

    @cached_property
    def first(self) -> "RuntimeModel | RealmModel":
        """Networks after pre-training."""
        return load_model(self.paths.stage("pretrain"), self.device) if self.body is None else self.body

    @cached_property
    def pretrained(self) -> "RealmModel":
        """The same by torch: embedder and encoder, or reader, explain masked sentences."""
        if self.body_by_torch is not None:
            with by_torch("explaining"):
                return self.body_by_torch().eval()
        return learning_model(self.paths.stage("pretrain")).to(self.device).eval()

    @cached_property
    def finetuned(self) -> "RealmModel":
        """The fine-tuned networks by torch."""
        return learning_model(self.paths.stage("finetune")).to(self.device).eval()

    @property
    def pointing(self) -> bool:
        """True if pre-training left a reader; answered without loading it."""
        return self.first_reader is not None

    @cached_property
    def first_reader(self) -> ReaderSpec | None:
        """Specification of the reader after pre-training, taught to point or part of the body; None without one."""
        return self.body.spec.reader if self.body is not None else read_spec(self.paths.stage("pretrain") / "config.json").reader

    @cached_property
    def reader(self) -> StageReader:
        """The fine-tuned reader, or else one taught to point by pre-training. Raises RunError: the run has no reader."""
        if self.other is not None:
            return self.other
        if self.body is not None and self.pointing:
            return own_reader(self.body, {}, bf16=self.bf16)
        if self.tuned is not None:
            return load_reader(self.paths, "finetune", self.tuned, device=self.device, bf16=self.bf16)
        if self.pointing:
            return load_reader(self.paths, "pretrain", self.first, device=self.device, bf16=self.bf16)
        cure = (
            f"Name questions in [finetune] train of the recipe and start realm run again; until then this finds documents: "
            f'realm index search {self.paths.root} "..."'
        )
        raise RunError("this run has no reader: it has not been fine-tuned on questions", path=self.paths.root, cure=cure)


@dataclass(frozen=True)
class OpenRun:
    """A run that can be asked."""

    paths: RunPaths
    recipe: Recipe
    inputs: BlockInputs  # its corpus, with the featuriser
    generation: Generation  # the index, with its document embedder
    networks: Networks  # of its stages; the same ones when the corpus changes

    @property
    def tuned(self) -> "RuntimeModel | RealmModel | None":
        """The fine-tuned networks; None if the run ended after pre-training."""
        return self.networks.tuned

    @property
    def without_questions(self) -> bool:
        """True if the reader was trained on documents alone, in this run or before."""
        reader = self.networks.first_reader
        return self.networks.other is None and self.tuned is None and reader is not None and not reader.taught

    @property
    def own_em(self) -> float | None:
        """Exact match on questions made from held-out sentences at the end of pre-training; None: not measured."""
        facts: dict[str, float | None] = {} if self.networks.body is not None else stage_facts(self.paths, "pretrain")
        return facts.get("own_em")

    @property
    def reads(self) -> bool:
        """True if the run has a reader."""
        return self.tuned is not None or self.networks.pointing or self.networks.other is not None

    @property
    def abstain_below(self) -> float:
        """Confidence, or p, below which answers are better not given; 0: not measured. Raises RunError: no reader."""
        return self.networks.reader.abstain_below

    @property
    def versions(self) -> dict[str, int]:
        """Versions that determine an answer."""
        manifest = self.generation.snapshot.manifest
        return {"params": manifest.params_generation, "index": self.generation.number, "corpus": self.inputs.store.version}

    @cached_property
    def source(self) -> DenseCandidates:
        """The question embedder (before fine-tuning: the one embedder) over the index, with sparse search if the recipe asks for it."""
        return self._source(None)

    @property
    def hybrid(self) -> HybridSearch | None:
        """Search by words too, over the same index; None if the recipe searches by embeddings alone."""
        return self.source.search if isinstance(self.source, HybridCandidates) else None

    def source_by(self, kind: str) -> DenseCandidates:
        """Source by one kind of search: dense, sparse (BM25, scored by the run's own embedder) or hybrid."""
        return self._source(None, kind)

    def _source(self, exclude: np.ndarray | None, kind: str = "") -> DenseCandidates:
        embedder = self.generation.queries if self.tuned is None else self.tuned.embedder
        how = Searching.stated(self.recipe, kind)
        return make_source(embedder, self.generation.snapshot, self.generation.index, self.inputs, self.paths.index, how, exclude)

    @cached_property
    def answerer(self) -> Answerer:
        """The answerer. Raises RunError: the run has no reader."""
        return self.networks.reader.over(self.inputs, self.source, versions=self.versions)

    def answers(self, questions: Sequence[str], k: int, abstain_below: float | None = None) -> list[Answer]:
        """The answer to each question from its best k blocks, with its level; ``abstain_below`` None: the run's own threshold.

        Raises RunError: the run has no reader. Raises ConfigError: as for ``require_k``; a question is blank."""
        _require_words(questions)
        below = self.abstain_below if abstain_below is None else abstain_below
        return [leveled(answer, below) for answer in self.answerer.answer(questions, k=self.require_k(k))]

    def answerer_without(self, documents: Sequence[str]) -> Answerer:
        """The answerer as if documents with these ids were not in the corpus.

        Raises RunError: the run has no reader. Raises DataError: one of them is not in the corpus. Raises ConfigError: nothing would be
        left to read."""
        answerer = self.answerer
        if not documents:
            return answerer
        exclude = self.inputs.blocks_of_documents(documents)
        if len(exclude) >= int(self.inputs.store.live.sum()) - self.unsearchable:
            raise ConfigError("every document is left out, so there is nothing to read", cure="Leave fewer documents out.")
        return self.networks.reader.over(self.inputs, self._source(exclude), versions=self.versions)

    def read_by(self, body: str) -> "OpenRun":
        """The same run with another model's reader, by a name as in ``model.body``; "" leaves its own. Raises ConfigError: the model is
        not here, has no reader, or reads other wordpieces."""
        if not body:
            return self
        reader = own_reader(reading_model(body, self.inputs), {}, bf16=self.networks.bf16)
        return replace(self, networks=replace(self.networks, other=reader))

    @cached_property
    def documents(self) -> list[str]:
        """Ids of the documents, in order of arrival."""
        return self.inputs.store.documents()

    def listed(self, start: int, count: int) -> tuple[list[tuple[str, str]], int | None]:
        """Ids and titles of ``count`` of the documents from number ``start`` on, and the number that comes next; None at the end."""
        store, ids = self.inputs.store, self.documents[start : start + count]
        titles = [store.block(int(store.live_rows_of_document(name)[0])).title for name in ids]
        return list(zip(ids, titles, strict=True)), start + count if start + count < len(self.documents) else None

    @cached_property
    def unsearchable(self) -> int:
        """Blocks added to the corpus that are not in the index yet."""
        return len(missing_rows(self.generation, self.inputs))

    @property
    def searchable(self) -> int:
        """Blocks of the corpus in the index."""
        return int(self.inputs.store.live.sum()) - self.unsearchable

    def require_k(self, k: int) -> int:
        """Return ``k``, or the number of blocks in the index where that is less. Raises ConfigError: below 1, or the index holds none."""
        blocks = self.searchable
        if k < 1 or not blocks:
            raise ConfigError(f"k = {k}, and the index holds {blocks} blocks", path=self.paths.index, cure="Give a k of at least 1.")
        return min(k, blocks)

    def search(self, text: str, k: int) -> tuple[Hit, ...]:
        """The k nearest blocks of a text, best first."""
        return self.search_all([text], k)[0]

    def search_all(self, texts: Sequence[str], k: int) -> list[tuple[Hit, ...]]:
        """The k nearest blocks of each text, best first. Raises ConfigError: as for ``require_k``; a text is blank."""
        _require_words(texts)
        store = self.inputs.store
        found = self.source.direct(texts, store.tokenizer.encode(list(texts)), self.require_k(k))
        return [
            tuple(hit(store.block(int(row)), float(score)) for row, score in zip(rows, scores, strict=True) if row >= 0)
            for rows, scores in zip(found.rows, found.scores, strict=True)
        ]

    def explain(self, text: str, *, targets: Sequence[str] = (), k: int = 8, exclude_documents: Sequence[str] = ()) -> Explanation:
        """Effect of documents on each ``[MASK]`` (see :func:`realm.answering.explain.explain`), by the pointing reader if there is one."""
        with by_torch("explaining"):
            from realm.answering.explain import explain

        model = self.networks.finetuned if self.tuned is not None and self.networks.pointing else self.networks.pretrained
        return explain(
            model, self.generation, self.inputs, text, targets=targets, k=k, exclude_documents=exclude_documents, hybrid=self.hybrid
        )

    def with_added(self, progress: Any = None) -> tuple["OpenRun", int]:
        """The run as it is now, with added blocks embedded by its own document embedder, and their number."""
        inputs = BlockInputs(self.inputs.store.newest(), self.inputs.featurizer)
        options = EmbedOptions(bf16=self.recipe.run.bf16).lasting(self.generation.embedder)
        generation, count = add_difference(self.generation, self.paths, inputs, progress, options=options)
        found = replace(self, inputs=inputs, generation=generation)
        if isinstance(found.source, HybridCandidates):
            found.source.search  # noqa: B018  # counts the words of the added blocks, before somebody asks
        return found, count


def _require_words(texts: Sequence[str]) -> None:
    """Raises ConfigError: one of the texts is blank."""
    if any(map(is_blank, texts)):
        raise ConfigError("an empty question", cure="Ask something.")
