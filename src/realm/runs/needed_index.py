"""The generation of the index that a run's last stage searches, rebuilt under its number if it is damaged.

It is made of the corpus and its parameters, which are also in the stage that ended with them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from realm.answering.opening import read_run_recipe
from realm.errors import RealmError, RunError, SnapshotError
from realm.models.model import RealmModel
from realm.models.runtime.model import runtime_model
from realm.progress import Progress
from realm.recipe import Recipe
from realm.search.blocks import BlockInputs, open_inputs
from realm.search.publishing.embedding import IN_PROCESS, EmbedOptions, embed_parts
from realm.search.publishing.generation import open_generation
from realm.search.publishing.parameters import ParameterFacts, check_parameters, parameters_path, publish_parameters, publishing, read_facts
from realm.search.publishing.refresher import build_generation
from realm.search.publishing.snapshot import ERRORS, SnapshotManifest, read_manifest
from realm.search.publishing.writing import Parts
from realm.storage.arrays import read_array
from realm.storage.files import is_transient
from realm.storage.generations import generation_path, quarantine, read_current
from realm.storage.layout import RunPaths, has_stage, stage_facts

_STAGES = ("finetune", "pretrain")
"""Stages whose networks search, the last one first."""


@dataclass(frozen=True)
class NeededIndex:
    """Parts of a run's index; ``stage``, the last one, searches generation ``number``. A cached folder has no stage, and searches the
    newest."""

    paths: RunPaths
    recipe: Recipe
    inputs: BlockInputs
    stage: str | None
    number: int | None

    @classmethod
    def of(cls, paths: RunPaths) -> "NeededIndex | None":
        """The index of a run; None without a corpus. Raises RealmError: recipe, corpus or the facts of the last stage are damaged."""
        if not paths.corpus.is_dir():
            return None
        recipe = read_run_recipe(paths)
        inputs = open_inputs(paths.corpus, recipe.model.query_length)
        if paths.wrapped.exists():
            return cls(paths, recipe, inputs, None, read_current(paths.index))
        last = next((stage for stage in _STAGES if has_stage(paths, stage)), None)
        return cls(paths, recipe, inputs, last, None if last is None else stage_facts(paths, last).get("generation"))

    def can_be_rebuilt(self) -> bool:
        """Tell whether its parameters, or the networks of the last stage, are whole."""
        try:
            return self._has_parameters() or self._networks() is not None
        except RealmError:
            return False

    def _networks(self) -> RealmModel:
        """The embedder of the documents as the last stage has it. Raises RealmError: it is damaged, or was another."""
        if self.stage is None or (self.stage == "pretrain" and self.recipe.pretrain.queries_alone):
            raise RunError("no stage holds the networks that embedded the documents", path=self.paths.root)
        model = RealmModel.from_pretrained(self.paths.stage(self.stage))
        return model.with_parts(embedder=model.documents, document_embedder=None, encoder=None, reader=None)

    def _has_parameters(self) -> bool:
        """Tell whether its parameters are whole, and those that embedded it where that is known."""
        directory, manifest = parameters_path(self.paths, self.number or 0), self._manifest()
        try:
            check_parameters(directory)
            model, facts = RealmModel.from_pretrained(directory), read_facts(directory)
        except RealmError:
            return False
        found = ParameterFacts.of(model, step=0)
        embedded = manifest is None or found.documents == manifest.document_embedder_sha256
        return embedded and facts is not None and found.same_networks(facts)

    def _manifest(self) -> SnapshotManifest | None:
        try:
            return read_manifest(generation_path(self.paths.index, self.number or 0), self.number or 0)
        except SnapshotError:
            return None

    def _held(self, path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Rows of each shard of a generation, and its versions; nothing where it does not say so, or some are gone."""
        with suppress(SnapshotError, KeyError):
            manifest = read_manifest(path, self.number or 0)
            files = [(path / shard.ids_file, shard) for shard in manifest.shards]
            ids = [read_array(file, (one.rows,), np.dtype(np.int64), ERRORS, sha256=one.ids_sha256) for file, one in files]
            versions = {"corpus_version": manifest.corpus_version, "tombstone_version": manifest.tombstone_version}
            return [self.inputs.store.rows_of(part) for part in ids], versions
        return [], {}

    def rebuild(self, progress: Progress) -> None:
        """Publish damaged parameters from the stage; move a damaged generation aside and embed its blocks again, as they were: the first
        shard by the networks, those that came later by what embeds additions, so that vectors have the same bits.

        Raises RealmError: neither parameters nor networks are whole; another process builds the index."""
        number = self.number or 0
        directory, path = parameters_path(self.paths, number), generation_path(self.paths.index, number)
        with publishing(self.paths.index):
            manifest = self._manifest()
            if not self._has_parameters():
                publish_parameters(self._networks(), directory, step=manifest.step if manifest else 0, exact=True)
            held, versions = self._held(path)
            try:
                open_generation(self.paths, self.inputs, number)
                return
            except SnapshotError as error:
                if is_transient(error):
                    raise
                if path.is_dir():
                    quarantine(path, error)
            model = RealmModel.from_pretrained(directory)
            embedder, facts = model.documents.eval().requires_grad_(False), read_facts(directory) or ParameterFacts.of(model, step=0)
            run, eight = self.recipe.run, manifest is not None and manifest.arithmetic == "int8"
            options = EmbedOptions(bf16=run.bf16, threads=run.threads, int8=eight).lasting(embedder)
            count, later = partial(progress.count, "index: blocks embedded"), runtime_model(directory)

            def parts_of(_: Any, params: Path, inputs: BlockInputs, rows: np.ndarray, options: EmbedOptions, told: Any) -> Parts:
                def parts(start: int) -> Iterator[np.ndarray]:
                    for at, shard in enumerate(held or [rows]):
                        by, how = (later.documents, IN_PROCESS) if at and later else (embedder, options)
                        yield from () if start >= len(shard) else embed_parts(by, params, inputs, shard, how, told)(max(start, 0))
                        start -= len(shard)

                return parts

            again = (np.concatenate(held), versions) if held else None
            build_generation(self.paths, self.inputs, number, embedder, facts, options, count, parts_of, again)


def whole_index(run: Path, progress: Progress, say: Callable[[str], None]) -> None:
    """Read every byte of the generation that the last stage searches; if it is damaged, say so and rebuild it.

    Raises RealmError: its parts are damaged, too; or another process builds the index."""
    needed = NeededIndex.of(RunPaths(run))
    if needed is None or needed.number is None:
        return
    try:
        open_generation(needed.paths, needed.inputs, needed.number)
    except SnapshotError as error:
        say(f"index: {error.problem}; generation {needed.number}, which the last stage searches, is rebuilt")
        needed.rebuild(progress)
