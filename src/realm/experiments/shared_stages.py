"""Stages that several runs share, each trained once in a run directory named by its fingerprint.

Corpus and parent stages are links, so every command that takes a run takes such a directory, and a killed stage continues.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from realm.progress import Progress
from realm.recipe import Recipe
from realm.runs.directory import build_run_corpus, claim_run, read_seconds, timed
from realm.runs.run import open_run_context
from realm.storage.files import make_directory
from realm.storage.paths import RunPaths
from realm.storage.stages import has_stage
from realm.training.context import StageContext, open_context
from realm.training.loop.distributed import on_first


@dataclass(frozen=True)
class SharedStage:
    """A stage published under ``name`` in the run directory of its context, and the stages it starts from."""

    name: str
    context: StageContext
    parents: tuple["SharedStage", ...]

    @property
    def paths(self) -> RunPaths:
        return self.context.paths

    @property
    def published(self) -> Path:
        return self.paths.stage(self.name)

    def seconds(self) -> float:
        """Spent on this stage, its evaluation and all stages before it, each counted once."""
        stages: dict[Path, SharedStage] = {}
        waiting = [self]
        while waiting:
            stage = waiting.pop()
            stages[stage.paths.root] = stage
            waiting += stage.parents
        return sum(sum(read_seconds(stage.paths).values()) for stage in stages.values())


@dataclass(frozen=True)
class Job:
    """Recipe of a shared stage: the start of its directory's name, its name, fingerprint and training.

    ``keeps_index``: it searches the index of its parent "pretrain" instead of one of its own.
    """

    directory: str
    stage: str
    mark: Callable[[StageContext], str]
    train: Callable[[StageContext], None]
    keeps_index: bool = False


@dataclass(frozen=True)
class _Lookup(RunPaths):
    """A run directory whose stages lie elsewhere: fingerprints are asked for before there is a directory to put links into."""

    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    def stage(self, stage: str) -> Path:
        return self.elsewhere[stage]


class SharedStages:
    """Stages under ``root/stages`` on the one corpus in ``root``, which becomes this recipe's."""

    def __init__(self, root: Path, recipe: Recipe, progress: Progress):
        self.paths = RunPaths(root)
        self.progress = progress

        def prepare() -> None:
            claim_run(self.paths, recipe)
            with timed(self.paths, "corpus"):
                build_run_corpus(self.paths, recipe, progress)

        on_first(prepare)
        progress.close()

    def publish(self, job: Job, recipe: Recipe, parents: Mapping[str, SharedStage]) -> SharedStage:
        """The stage of a job under a recipe, found or trained now; ``parents`` by the names under which it looks for them."""
        found = {name: parent.published for name, parent in parents.items()}
        asking = open_context(self.paths, recipe, self.progress.report)
        mark = job.mark(replace(asking, paths=_Lookup(self.paths.root, found)))
        paths = RunPaths(self.paths.root / "stages" / f"{job.directory}-{mark}")
        on_first(lambda: self._furnish(paths, job, recipe, parents))
        stage = SharedStage(job.stage, open_run_context(paths, recipe, self.progress), tuple(parents.values()))
        if not on_first(lambda: has_stage(paths, job.stage)):
            with timed(paths, job.directory):
                job.train(stage.context)
            self.progress.close()  # the next stage of this name is another one
        return stage

    def _furnish(self, paths: RunPaths, job: Job, recipe: Recipe, parents: Mapping[str, SharedStage]) -> None:
        """Make the run directory with links to all that it does not make itself."""
        if has_stage(paths, job.stage):
            return
        make_directory(paths.root)
        _link(paths.corpus, self.paths.corpus)
        if self.paths.sentences.exists():
            _link(paths.sentences, self.paths.sentences)
        for name, parent in parents.items():
            _link(paths.stage(name), parent.published)
        if job.keeps_index:
            _link(paths.index, parents["pretrain"].paths.index)
            _link(paths.params, parents["pretrain"].paths.params)
        claim_run(paths, recipe)


def _link(link: Path, target: Path) -> None:
    """A relative link, so that the whole directory may move."""
    if not link.is_symlink():
        make_directory(link.parent)
        link.symlink_to(os.path.relpath(target, link.parent))
