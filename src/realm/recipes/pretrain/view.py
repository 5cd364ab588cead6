"""What pre-training shows to those who watch it: the networks as they are, and the index that is searched."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from realm.config import PretrainConfig
from realm.corpus.store.blocks import BlockStore
from realm.data.blocks import BlockInputs
from realm.data.types import MaskedQuery
from realm.index.hybrid import HybridSearch
from realm.index.snapshot import Snapshot
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext
from realm.recipes.pretrain.retrieving import retrieve_candidates
from realm.refresh import Generation
from realm.retrieval import Retrieved


@dataclass(frozen=True)
class PretrainView:
    """One moment of pre-training.

    Attributes:
        context: the run.
        model: the live networks.
        generation: what is searched.
        sentences: where the masked sentences come from.
        hybrid: dense and sparse search of the generation, where the recipe wants both.
    """

    context: StageContext
    model: RealmModel
    generation: Generation
    sentences: BlockStore
    hybrid: HybridSearch | None = None

    @property
    def inputs(self) -> BlockInputs:
        return self.context.inputs

    @property
    def section(self) -> PretrainConfig:
        return self.context.recipe.pretrain

    @property
    def known(self) -> Snapshot | None:
        """The embeddings of the documents, where these stay as they are; None where they learn."""
        return self.generation.snapshot if self.section.queries_alone else None

    def retrieve(self, queries: SequenceOf[MaskedQuery], k: int = 0) -> Retrieved:
        """k candidates by the generation's own embedder, null first if it is one, without the documents that hold a query's sentence.

        Args:
            queries: b masked sentences.
            k: candidates; 0: as many as the recipe says.

        Raises:
            TrainingError: the embedder has damaged weights.
        """
        section = self.section
        return retrieve_candidates(
            self.generation,
            self.inputs,
            queries,
            k or section.candidates,
            null=section.null,
            overlap=section.exclude_overlap,
            hybrid=self.hybrid,
            sentences=self.sentences,
            proposals=section.proposals,
            pointer=section.fill == "pointer",
        )
