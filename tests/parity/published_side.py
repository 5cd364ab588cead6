"""The published side: random weights and inputs through transformers 4.40.2's REALM classes, in the parity environment's Python.

Writes one file per case: ``weights/``, ``inputs/``, then ``outputs/`` and ``gradients/`` below float64 and float32. Weights are float32
numbers, so that both precisions start from the same values. Run by compare.py; no code of ours is imported but the cases.

The fixtures of tests/models/golden are made with: .venv-parity/bin/python tests/parity/published_side.py tests/models/golden --golden"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from cases import BLOCKS, CLS, FIRST_WORD, GOLDEN_SEED, GOLDEN_SHAPE, KINDS, QUESTIONS, SEEDS, SEP, SHAPES, Shape, vocabulary
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    RealmConfig,
    RealmEmbedder,
    RealmForOpenQA,
    RealmKnowledgeAugEncoder,
    RealmReader,
    RealmRetriever,
    RealmScorer,
    RealmTokenizer,
)

Tensors = dict[str, Tensor]


def randomise(model: torch.nn.Module, rng: torch.Generator) -> None:
    """Every parameter away from its default: norms that scale and shift, biases that are not zero."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=rng)
        if "norm" in name.lower() and name.endswith("weight"):
            # Small embeddings: scores then differ by a few, and a loss is no small difference of large numbers.
            value = (0.25 if "cls.LayerNorm" in name else 1.0) * (1 + 0.3 * noise)
        elif parameter.dim() == 1:
            value = 0.2 * noise
        else:
            # The word embeddings are the decoder too: logits of all widths then spread by about 1.5.
            value = noise * (1.5 if "embeddings" in name else 0.8) / parameter.shape[1] ** 0.5
        parameter.data.copy_(value)


def rows(shape: Shape, count: int, rng: torch.Generator, *, pairs: bool) -> Tensors:
    """Padded inputs of many lengths: [CLS] a [SEP] or, in pairs, [CLS] a [SEP] b [SEP]; one body is empty, as the null document's."""
    ids = torch.zeros(count, shape.length, dtype=torch.long)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for i in range(count):
        first = int(torch.randint(2, shape.length // 3, (1,), generator=rng))
        body = int(torch.randint(3, shape.length - first - 3, (1,), generator=rng)) if pairs and i != 1 else 0
        words = torch.randint(FIRST_WORD, shape.words, (first + body,), generator=rng).tolist()
        row = [CLS, *words[:first], SEP, *([*words[first:], SEP] if pairs else [])]
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
        segments[i, first + 2 : len(row)] = 1
    return {"ids": ids, "mask": mask, "segments": segments}


def call(inputs: Tensors) -> Tensors:
    return {"input_ids": inputs["ids"], "attention_mask": inputs["mask"], "token_type_ids": inputs["segments"]}


def prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


class EmbedderCase:
    published = RealmEmbedder

    def inputs(self, shape: Shape, rng: torch.Generator) -> Tensors:
        weight = torch.randn(6, shape.projection, generator=rng)
        return {**rows(shape, 6, rng, pairs=True), "weight": weight}

    def run(self, model, inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
        projected = model(**call(inputs)).projected_score
        return {"projected": projected}, (projected * inputs["weight"].to(dtype)).sum()


class ScorerCase:
    published = RealmScorer

    def inputs(self, shape: Shape, rng: torch.Generator) -> Tensors:
        queries = prefixed("query_", rows(shape, shape.batch, rng, pairs=False))
        blocks = prefixed("block_", rows(shape, shape.batch * shape.candidates, rng, pairs=True))
        return {**queries, **blocks, "weight": torch.randn(shape.batch, shape.candidates, generator=rng)}

    def run(self, model, inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
        b, k = inputs["weight"].shape
        blocks = {
            f"candidate_{n}": t.view(b, k, -1) for n, t in call({n: inputs[f"block_{n}"] for n in ("ids", "mask", "segments")}).items()
        }
        out = model(**call({n: inputs[f"query_{n}"] for n in ("ids", "mask", "segments")}), **blocks)
        values = {"relevance": out.relevance_score, "query_emb": out.query_score, "block_emb": out.candidate_score}
        return values, (out.relevance_score * inputs["weight"].to(dtype)).sum()


class EncoderCase:
    published = RealmKnowledgeAugEncoder

    def inputs(self, shape: Shape, rng: torch.Generator) -> Tensors:
        n = shape.batch * shape.candidates
        inputs = rows(shape, n, rng, pairs=True)
        labels = torch.randint(FIRST_WORD, shape.words, (shape.batch, shape.length), generator=rng)
        mlm_mask = torch.zeros(shape.batch, shape.length, dtype=torch.long)
        mlm_mask[0, 1:3] = 1
        mlm_mask[1, 2] = 1
        return {**inputs, "labels": labels, "mlm_mask": mlm_mask, "relevance": torch.randn(shape.batch, shape.candidates, generator=rng)}

    def run(self, model, inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
        b, k = inputs["relevance"].shape
        relevance = inputs["relevance"].to(dtype).requires_grad_()
        joint = {name: tensor.view(b, k, -1) for name, tensor in call(inputs).items()}
        out = model(**joint, relevance_score=relevance, labels=inputs["labels"], mlm_mask=inputs["mlm_mask"])
        self.leaves = {"relevance": relevance}
        return {"loss": out.loss, "logits": out.logits * inputs["mask"].unsqueeze(-1)}, out.loss


class ReaderCase:
    published = RealmReader
    answers = True

    def inputs(self, shape: Shape, rng: torch.Generator) -> Tensors:
        beam, read = 5, 3
        inputs = rows(shape, beam, rng, pairs=True)
        body = (inputs["segments"] == 1) & (inputs["ids"] != SEP)
        starts, ends = torch.full((beam, 3), -1), torch.full((beam, 3), -1)
        for block, (slot, width) in ((0, (0, 1)), (0, (1, 2)), (2, (0, 2)), (4, (0, 1))):
            first = int(body[block].nonzero()[0, 0])
            starts[block, slot], ends[block, slot] = first, first + width - 1
        has = starts.ge(0).any(1) & torch.tensor(self.answers)
        if not self.answers:
            starts, ends = torch.full_like(starts, -1), torch.full_like(ends, -1)
        positions = {"starts": starts, "ends": ends, "has_answers": has.long(), "body": body.long()}
        return {**inputs, **positions, "relevance": 2 * torch.randn(beam, generator=rng), "read": torch.tensor(read)}

    def run(self, model, inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
        read, relevance = int(inputs["read"]), inputs["relevance"].to(dtype).requires_grad_()
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        hook = model.qa_outputs.register_forward_hook(lambda module, args, out: kept.append((out[0].detach().clone(), out[1], out[2])))
        answers = {"start_positions": inputs["starts"], "end_positions": inputs["ends"], "has_answers": inputs["has_answers"].bool()}
        joint = {name: tensor[:read] for name, tensor in call(inputs).items()}
        out = model(**joint, relevance_score=relevance, block_mask=inputs["body"].bool(), **answers)
        hook.remove()
        self.leaves = {"relevance": relevance}
        logits, starts, ends = kept[0]
        valid = inputs["body"][:read][:, starts].bool() & inputs["body"][:read][:, ends].bool()
        spans = (logits + relevance.detach()[:read, None]).masked_fill(~valid, 0.0)
        best = {"block": out.block_idx, "start": out.start_pos, "end": out.end_pos}
        scores = {"span_logits": spans, "span_starts": starts, "span_ends": ends, "span_valid": valid.long()}
        values = {"loss": out.loss, "retriever_loss": out.retriever_loss, "reader_loss": out.reader_loss, **best, **scores}
        return values | {"correct": out.reader_correct.long()}, out.loss


class OpenQaCase:
    published = RealmForOpenQA

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", "utf-8")
            self.tokenizer = RealmTokenizer(str(Path(scratch) / "vocab.txt"), do_lower_case=True)
        self.retriever = RealmRetriever(np.array([text.encode() for _, text in BLOCKS], dtype=object), self.tokenizer)

    def inputs(self, shape: Shape, rng: torch.Generator) -> Tensors:
        titles, texts = zip(*BLOCKS, strict=True)
        encoded = self.tokenizer(list(titles), list(texts), padding=True, return_tensors="pt")
        return {"ids": encoded["input_ids"], "mask": encoded["attention_mask"], "segments": encoded["token_type_ids"]}

    def run(self, model, inputs: Tensors, dtype: torch.dtype) -> tuple[Tensors, Tensor]:
        model.retriever = self.retriever
        embedded = model.embedder(**call(inputs)).projected_score.detach()
        values: Tensors = {"block_emb": embedded}
        total = torch.zeros((), dtype=dtype)
        for i, (question, answers) in enumerate(QUESTIONS):
            ids = self.tokenizer(question, return_tensors="pt")
            accepted = self.tokenizer(list(answers), add_special_tokens=False).input_ids
            out = model.train()(**ids, answer_ids=accepted)
            losses = {"loss": out.reader_output.loss, "retriever_loss": out.reader_output.retriever_loss}
            losses |= {"reader_loss": out.reader_output.reader_loss, "found": out.reader_output.retriever_correct.long()}
            best = model.eval()(**ids)
            block = best.reader_output.block_idx.view(1)
            values |= prefixed(f"question{i}.", losses | {"block": block, "answer_ids": best.predicted_answer_ids})
            total = total + out.reader_output.loss
        return values | {"total": total.detach()}, total


class NoAnswerCase(ReaderCase):
    answers = False


CASES = {"embedder": EmbedderCase, "scorer": ScorerCase, "encoder": EncoderCase, "reader": ReaderCase, "openqa": OpenQaCase}


def build(case, kind: str, shape: Shape, rng: torch.Generator) -> torch.nn.Module:
    config = RealmConfig(**shape.config(len(vocabulary()) if kind == "openqa" else 0))
    model = case.published(config, RealmEmbedder(config)) if kind == "scorer" else case.published(config)
    randomise(model, rng)
    return model.eval()


def write_case(kind: str, case, shape: Shape, seed: int, path: Path) -> None:
    """One case in both precisions."""
    rng = torch.Generator().manual_seed(seed)
    model, inputs = build(case, kind, shape, rng), case.inputs(shape, rng)
    if kind == "openqa":
        # Apart from each other: a random network's own embeddings of blocks are nearly one vector, whose share in a gradient cancels.
        model.block_emb.copy_(0.25 * torch.randn(model.block_emb.shape, generator=rng))
    file = prefixed("weights/", {n: t.detach().clone() for n, t in model.state_dict().items()})
    file |= prefixed("inputs/", {n: t.clone() for n, t in inputs.items()})
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        model.to(dtype).zero_grad()
        case.leaves = {}
        outputs, loss = case.run(model, inputs, dtype)
        loss.backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        gradients |= {n: t.grad for n, t in case.leaves.items()}
        file |= prefixed(f"{name}/outputs/", {n: t.detach().clone() for n, t in outputs.items()})
        file |= prefixed(f"{name}/gradients/", {n: t.clone() for n, t in gradients.items()})
        # A second precision must start from the same numbers.
        model.load_state_dict({n.removeprefix("weights/"): t for n, t in file.items() if n.startswith("weights/")})
    config = json.dumps(model.config.to_dict())
    save_file({n: t.contiguous() for n, t in file.items()}, path, metadata={"kind": kind, "config": config, "seed": str(seed)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--golden", action="store_true", help="one tiny case a class instead of all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.golden:
        for kind in KINDS:
            write_case(kind, CASES[kind](), GOLDEN_SHAPE, GOLDEN_SEED, options.out / f"{kind}.safetensors")
        return
    for name, shape in SHAPES.items():
        for seed in SEEDS if name != "base" else SEEDS[:1]:
            for kind in KINDS:
                write_case(kind, CASES[kind](), shape, seed, options.out / f"{kind}-{name}-{seed}.safetensors")
            write_case("reader", NoAnswerCase(), shape, seed, options.out / f"reader-{name}-{seed}-no-answer.safetensors")


if __name__ == "__main__":
    main()
