"""Inverse cloze task: the embedder's warm start (ORQA, section 5)."""

import numpy as np
import torch

from realm import losses
from realm.data.ict import InverseCloze
from realm.data.loader import EpochOrder, generator
from realm.errors import CorpusError
from realm.nn.model import RealmModel
from realm.recipes.context import StageContext, fingerprint, is_published, new_model, publish_stage, train
from realm.train.loop import StepResult, Task


class IctTask(Task):
    """A batch of blocks, one sentence of each as its pseudo-query, the other blocks as negatives."""

    name = "ict"

    def __init__(self, context: StageContext, model: RealmModel):
        section = context.recipe.ict
        self.model = model
        self.context = context
        self.batch = section.batch
        self.cloze = InverseCloze(context.store, keep_rate=section.keep_rate)
        if len(self.cloze) < 2:
            cure = "ICT needs at least two blocks of two sentences: add documents."
            raise CorpusError(f"{len(self.cloze)} blocks have more than one sentence", path=context.paths.corpus, cure=cure)
        self.order = EpochOrder(len(self.cloze), "ict", context.seed)

    def step(self, step: int) -> StepResult:
        seed, features = self.context.seed, self.context.inputs.featurizer
        examples = [self.cloze.example(item, generator("ict", seed, at)) for at, item in self.order.batch(step, self.batch)]
        assert self.model.embedder is not None
        queries = self.model.embedder([features.query(e.query) for e in examples])
        blocks = self.model.embedder([features.block(e.title, e.body) for e in examples])
        ids = np.array([e.block_id for e in examples])
        collision = torch.from_numpy(ids[:, None] == ids[None, :]).to(queries.device)
        positive = torch.arange(len(examples), device=queries.device)
        loss, valid = losses.ict(queries, blocks, positive, collision)
        hits = (queries.detach() @ blocks.detach().T).argmax(-1) == positive
        return StepResult(loss.mean(), int(valid.sum()), {"accuracy": float(hits.float().mean())})


def run_ict(context: StageContext) -> None:
    """Train the embedder by ICT and publish it; nothing happens when that is done already."""
    mark = fingerprint(context, "ict")
    if is_published(context, "ict", mark):
        return
    model = new_model(context).with_parts(encoder=None).to(context.device)
    steps = train(context, IctTask(context, model), context.recipe.ict, mark)
    publish_stage(context, "ict", model, mark, {"steps": steps})
