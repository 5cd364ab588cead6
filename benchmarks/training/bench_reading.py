"""Speed of learning to read from given paragraphs, beside plain transformers with the settings of their script run_qa.

    python -m benchmarks.training.bench_reading DATA --scratch DIR [--threads 2]

Both learn from the same questions of SQuAD's train set with the body of the released reader, in batches of 32 windows, in bfloat16 where
the processor multiplies it, forth and back, clipping and update. The plain way pads every window to 384 wordpieces, strides by 128, gives
the attention that transformers choose and a start and an end score, and knows a cross-entropy of each. Ours is ``finetune.passages =
"given"``: as it ships, which cuts most long paragraphs to 96 wordpieces, and with whole paragraphs. Questions are counted, not windows.
Operations are counted over real wordpieces, as in ``bench_body_step``, and their share of the processor's peak is that of the body's
largest product. The last line is one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.common import result
from benchmarks.training.step_work import body_flops, gemm_peak
from realm.evaluation.questions.loading import load_questions
from realm.models.bodies.body import Body, freeze_words, has_bf16
from realm.models.types import Question
from realm.progress import Progress
from realm.recipe import build_recipe
from realm.runs.run import run_recipe
from realm.storage.layout import RunPaths
from realm.text.tokenizer import RELEASED
from realm.training.context import StageContext, load_stage, open_context
from realm.training.finetune import given
from realm.training.loop.optim import adamw, parameter_groups
from realm.training.starting import with_new_reader

BATCH, LONGEST, STRIDE, QUESTIONS = 32, 384, 128, 3200
CROPPED, WHOLE, PLAIN = "realm", "realm, whole paragraphs", "plain transformers"


class Ours:
    """Steps of the stage as it is; ``crop``: wordpieces of a window of a longer paragraph, None reads all of it."""

    def __init__(self, context: StageContext, questions: list[Question], crop: int | None):
        model = with_new_reader(context, load_stage(context, "pretrain").fork_document_embedder(), pointer=True, titles=True)
        freeze_words(model.reader)
        with patch.object(given, "CROP", crop or 1 << 30):
            self.task = given.GivenTask(context, model.reader.train(), questions, [])
        self.optimizer = adamw([model.reader], lr=1e-5)

    def loss(self, step: int) -> Tensor:
        return self.task.step(step).mean

    def read(self, step: int) -> tuple[int, list[int]]:
        """Questions of a step, and the lengths of its inputs."""
        windows = [self.task.windows[item] for _, item in self.task.order.batch(step, BATCH)]
        asked = [self.task.given.questions[window.question] for window in windows]
        lengths = [len(window) + len(tokens) + 3 for window, tokens in zip(windows, self._tokens(asked), strict=True)]
        return len({window.question for window in windows}), lengths

    def _tokens(self, asked: list[Question]) -> list[list[int]]:
        return self.task.context.store.tokenizer.encode([question.text for question in asked])


class Plain:
    """The same body under a start and an end score, over windows of one length."""

    def __init__(self, body: Body, questions: list[Question]):
        from transformers import PreTrainedTokenizerFast

        self.body = body.model
        self.body.set_attn_implementation("sdpa")  # type: ignore[operator]
        self.head = nn.Linear(body.spec.hidden, 2)
        self.optimizer = torch.optim.AdamW(parameter_groups([self.body, self.head], 0.01), lr=1e-5)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(RELEASED / "tokenizer.json"), pad_token="[PAD]")
        texts = [question.text for question in questions], [question.context for question in questions]
        self.windows = tokenizer(
            *texts, truncation="only_second", max_length=LONGEST, stride=STRIDE, padding="max_length",
            return_overflowing_tokens=True, return_offsets_mapping=True, return_token_type_ids=True, return_tensors="pt"
        )  # fmt: skip
        self.gold = torch.tensor([self._gold(questions, row) for row in range(len(self.windows["input_ids"]))])

    def _gold(self, questions: list[Question], row: int) -> list[int]:
        question = questions[self.windows["overflow_to_sample_mapping"][row]]
        start, end = given.answer_places(question)[0] if given.answer_places(question) else (-1, -1)
        body = [at for at, side in enumerate(self.windows.sequence_ids(row)) if side == 1]
        offsets = self.windows["offset_mapping"][row].tolist()
        inside = [at for at in body if start <= offsets[at][0] and offsets[at][1] <= end]
        return [inside[0], inside[-1]] if inside else [0, 0]

    def _rows(self, step: int) -> Tensor:
        return (torch.arange(BATCH) + step * BATCH) % len(self.gold)

    def loss(self, step: int) -> Tensor:
        rows = self._rows(step)
        inputs = {name: self.windows[name][rows] for name in ("input_ids", "attention_mask", "token_type_ids")}
        scores = self.head(self.body(**inputs).last_hidden_state).float()
        return torch.stack([nn.functional.cross_entropy(scores[:, :, side], self.gold[rows, side]) for side in (0, 1)]).mean()

    def read(self, step: int) -> tuple[int, list[int]]:
        rows = self._rows(step)
        return len(set(self.windows["overflow_to_sample_mapping"][rows].tolist())), self.windows["attention_mask"][rows].sum(1).tolist()


def timed_step(way: Ours | Plain, step: int, bf16: bool, body: Any) -> dict[str, float]:
    """One step by both clocks, with the questions that it learnt from and its share of the peak measured right after it."""
    way.optimizer.zero_grad(set_to_none=True)
    started, worked = time.perf_counter(), time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = way.loss(step)
    loss.backward()
    parameters = [parameter for group in way.optimizer.param_groups for parameter in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    way.optimizer.step()
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    questions, lengths = way.read(step)
    dtype = torch.bfloat16 if bf16 else torch.float32
    peak = gemm_peak(body.hidden, int(body.config["intermediate_size"]), dtype, clock=time.process_time)
    flops = 3 * sum(body_flops(body, length, length) for length in lengths)
    return {"questions_per_second": questions / seconds, "share_of_peak": flops / processor / peak, "loss": loss.item()}


def context_in(scratch: Path, data: Path) -> StageContext:
    """A run of the released body over a few documents, as a stage opens it."""
    documents = scratch / "documents.jsonl"
    scratch.mkdir(parents=True, exist_ok=True)
    documents.write_text("".join(json.dumps({"id": str(n), "text": f"Note {n} says little."}) + "\n" for n in range(50)))
    values = {
        "model": {"body": "realm-minilm-en", "freeze_words": True, "dropout": 0.0},
        "run": {"device": "cpu", "bf16": has_bf16("cpu")},
        "corpus": {"sources": [str(documents)], "tagger": "none", "block_length": LONGEST},
        "pretrain": {"steps": 0, "from_ict": False, "from_warm": False},
        "finetune": {"passages": "given", "train": str(data), "batch": BATCH},
    }
    recipe = build_recipe(values)
    run_recipe(recipe, scratch / "run", stages=("corpus", "pretrain"), progress=Progress(quiet=True))
    return open_context(RunPaths(scratch / "run"), recipe, lambda *_: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    questions = load_questions(arguments.data / "squad/train_official.jsonl.xz")[::27][:QUESTIONS]
    context = context_in(arguments.scratch, arguments.data / "squad/train_official.jsonl.xz")
    ways: dict[str, Ours | Plain] = {CROPPED: Ours(context, questions, given.CROP), WHOLE: Ours(context, questions, None)}
    body = ways[CROPPED].task.reader.body.spec  # type: ignore[union-attr]
    ways[PLAIN] = Plain(Ours(context, questions[:BATCH], None).task.reader.body, questions)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for turn in range(arguments.rounds + 1):  # the first warms up
        for name, way in ways.items():
            found[name].append(timed_step(way, turn, has_bf16("cpu"), body))
            print(f"  {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    rows = [
        {"method": name} | {key: round(statistics.median(step[key] for step in steps[1:]), 4) for key in steps[0]}
        for name, steps in found.items()
    ]
    speed = {row["method"]: row["questions_per_second"] for row in rows}
    ratios = {f"{name} to {PLAIN} (at least 1.8)": round(speed[name] / speed[PLAIN], 2) for name in (CROPPED, WHOLE)}
    hours = {name: round(87_599 / value / 3600, 2) for name, value in speed.items()}
    print(json.dumps(result("reading", arguments.threads, rows=rows, ratios=ratios, hours_of_a_pass=hours)))


if __name__ == "__main__":
    main()
