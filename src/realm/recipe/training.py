"""The sections of a recipe about training, and checks across their keys."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from realm.errors import ConfigError
from realm.recipe.values import Count, File, FileList, Files, Positive, Published, Share, named


@dataclass(frozen=True)
class IctConfig:
    """Inverse cloze task: the retriever's warm start."""

    steps: int = 400
    """Optimiser steps."""
    batch: Annotated[int, Ge(2)] = 64
    """Pseudo-queries a step over all ranks; the other blocks of the batch are the negatives."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: Count = 40
    """Steps of linear warm-up."""


@dataclass(frozen=True)
class WarmConfig:
    """The encoder learns to read: masked sentences together with the block they came from."""

    steps: int = 600
    """At most so many optimiser steps; the stage ends earlier once the encoder reads."""
    batch: Positive = 32
    """Masked sentences a step over all ranks."""
    lr: float = 3e-3
    """Peak learning rate."""
    warmup: Count = 40
    """Steps of linear warm-up."""
    least_steps: int = 0
    """Steps before the reading test may end the stage."""
    check_every: Positive = 50
    """Steps between tests on held-out pairs."""


@dataclass(frozen=True)
class PretrainConfig:
    """REALM pre-training with a latent retriever."""

    steps: int = 300
    """Optimiser steps."""
    batch: Positive = 16
    """Masked sentences a step over all ranks."""
    lr: float = 3e-4
    """Peak learning rate."""
    retriever_rate: Share = 1.0
    """Learning rate of the retriever as a share of lr, 0 to 1; 0 keeps the retriever as ICT trained it."""
    warmup: Count = 20
    """Steps of linear warm-up."""
    candidates: Annotated[int, Ge(2)] = 8
    """Documents per query, the null document included."""
    null: bool = True
    """Make the empty null document one of the candidates, for sentences that need no document."""
    sentences: FileList = ()
    """Documents whose sentences are masked instead of the corpus's own, or the directory of a corpus with the same tokenizer; empty: the
    corpus's own."""
    fill: Literal["mlm", "pointer", "lm"] = "mlm"
    """Prediction of the hidden span: mlm (wordpiece by wordpiece, as in the paper), pointer (by pointing at it in a document, with the span
    reader that fine-tuning continues to train) or lm (a language model that stays as it is continues the sentence from there; the retriever
    alone learns, as in REPLUG)."""
    language_model: File = ""
    """With lm: directory of a causal language model of transformers, such as a GPT-2 or a Llama, with its tokenizer."""
    masking: Literal["salient", "recurring", "spans", "tokens"] = "salient"
    """Masks: salient (spans found by the tagger), recurring (words that another document has too, together with something else of
    the sentence), spans (random ones, whole words) or tokens (15 % of the wordpieces)."""
    unsalient: Share = 0.5
    """With recurring: how often an untagged span is hidden in a sentence that has tagged and untagged ones."""
    exclude: bool | Literal["document", "reading"] = True
    """Leave out the blocks that hold the sentence itself; document: all blocks of its document, too; reading: these, but in steps in which
    the reader stays none. false is for experiments: a reader that learns then copies."""
    proposals: Count = 0
    """Blocks that search proposes for a sentence; the embedder's best of them are the candidates. 0: as many as there are candidates."""
    shown: Share = 0.0
    """Share of queries that show the retriever the hidden span; the reader never sees it."""
    reader_first: Count = 0
    """First steps in which only the reader learns; one of its candidates holds the span."""
    reader: Literal["trained", "frozen"] = "trained"
    """With pointer: whether the reader learns. frozen: it stays as model.body has it, which must be the stage of a run that taught one, and
    the retriever alone learns."""
    documents: Literal["trained", "frozen"] = "trained"
    """Training of the document embedder: trained (as in REALM; the index is rebuilt during training), or frozen: only the query embedder
    learns, after reader_first it alone with a fixed reader, and the first index never gets stale."""
    questions: Share = 0.0
    """With pointer: how often a sentence becomes a question, made from the words of a retrieved block that states the same."""
    own_block: Share = 0.0
    """With pointer, while only the reader learns: how often a sentence is read beside its own block and similar blocks. Its words are
    dropped and shuffled, or it becomes a question, so that the reader cannot match the sentence itself."""
    marginal: Literal["token", "joint"] = "token"
    """token (released code) or joint (the paper's formula)."""
    from_ict: bool = True
    """Start from ICT's embedder; false skips the stage and starts from random weights or the body."""
    from_warm: bool = True
    """Start from the warm stage's encoder; false skips the stage, and an encoder that cannot read yet needs force = true."""
    refresh: Literal["process", "inline", "external", "frozen"] = "process"
    """Process that embeds the corpus again: process (a refresher beside the trainer), inline (the trainer itself: same seed, same weights),
    external (realm refresh RUN, which you start), frozen (nothing: the first index stays)."""
    refresh_every: Positive = 50
    """Steps between refreshes of the index."""
    held_out: Count = 100
    """Sentences, at most a tenth, that are never trained on: what retrieval adds is measured on them. 0 holds out none."""
    eval_every: Positive = 100
    """Steps between two evaluations on them; also before the first step and after the last."""
    publish: Published = "last"
    """Weights that the stage publishes: last; best: those with the highest marginal utility on held-out sentences; or better: the last,
    except that each network that got worse there is reset to its start (the retriever by recall at 5 and the rank of sentences' own
    blocks, then the encoder or reader by utility)."""
    force: bool = False
    """Start although the encoder has not passed the reading test of the warm stage."""

    def retriever_learns(self, step: int) -> bool:
        """Return whether a step, counted from 0, teaches the retriever, too. If none does, the first index stays."""
        return step >= self.reader_first and bool(self.retriever_rate or self.fill == "mlm")

    def reader_stays(self, step: int) -> bool:
        """Return whether a step teaches the retriever alone: of a reader that is to learn never without steps in which it learnt first."""
        return self.reader == "frozen" or (self.documents == "frozen" and 0 < self.reader_first <= step)

    @property
    def queries_alone(self) -> bool:
        """Return whether queries get an embedder of their own, which learns while that of the documents stays."""
        return self.documents == "frozen" and bool(self.retriever_rate) and self.retriever_learns(max(0, self.steps - 1))


@dataclass(frozen=True)
class RefresherConfig:
    """Embedding of the corpus during pre-training; you may change this at any time."""

    threads: Positive = 1
    """CPU threads of each process that embeds."""
    devices: tuple[str, ...] = ()
    """One process on each of these devices, such as cuda:1, or cpu twice for two processes; empty: one where the trainer computes."""
    int8: bool = False
    """Embed what is indexed without training in 8-bit integers, by ONNX Runtime: 2.4 times float32's speed on a processor with
    VNNI, 1.2 times bfloat16's, and recall at 20 within .002."""


def check_pretrain(section: PretrainConfig) -> None:
    """Check that the keys of [pretrain] go together. Raises ConfigError."""
    if section.publish == "best" and not section.held_out:
        cure = "The best weights are chosen on held-out sentences: set pretrain.held_out, or publish the last."
        raise ConfigError("'pretrain.publish' is 'best' and 'pretrain.held_out' is 0", cure=cure)
    if section.fill == "pointer" and section.masking == "tokens":
        cure = "Hide one span: set pretrain.masking to recurring."
        raise ConfigError("'pretrain.fill' is 'pointer', which points at one span of a sentence", cure=cure)
    if section.fill != "pointer" and (section.reader_first or section.questions or section.own_block):
        cure = 'Set pretrain.fill = "pointer", or leave them out.'
        raise ConfigError("'pretrain.reader_first', 'questions' and 'own_block' are for a reader that points", cure=cure)
    if (section.fill == "lm") != bool(section.language_model) or (section.fill == "lm" and not section.retriever_rate):
        cure = "Name its directory in pretrain.language_model, with retriever_rate above 0; or set pretrain.fill to another."
        raise ConfigError(
            "'pretrain.fill' is 'lm' where a language model is named, by which the retriever learns, and only there", cure=cure
        )
    if section.reader == "frozen" and (section.fill != "pointer" or section.reader_first or not section.retriever_rate):
        cure = 'Set pretrain.fill = "pointer", reader_first to 0 and retriever_rate above 0, or leave pretrain.reader out.'
        raise ConfigError("'pretrain.reader' is 'frozen', so that the retriever alone learns, by a reader that points", cure=cure)
    if section.own_block and section.steps and section.retriever_learns(0):
        cure = "Set pretrain.reader_first to a number of steps, or pretrain.retriever_rate = 0."
        raise ConfigError("'pretrain.own_block' is given, and there is no step in which the reader learns alone", cure=cure)
    if section.own_block and section.sentences:
        cure = "Leave one of them out."
        raise ConfigError("'pretrain.own_block' is given, and 'pretrain.sentences' has no block in the corpus", cure=cure)
    if section.steps and section.fill == "mlm" and not section.from_warm and not section.force:
        cure = "Set pretrain.from_warm = true, or pretrain.force = true to see what happens."
        raise ConfigError("'pretrain.from_warm' is false: the encoder would start without having learnt to read", cure=cure)


@dataclass(frozen=True)
class FinetuneConfig:
    """Open-domain question answering."""

    preset: str = ""
    """few-shot: for 8 to 200 questions (few steps, frequent evaluation on dev, early stopping, the best weights); empty: the values
    below."""
    train: Files = ""
    """Questions to learn from, in any format of docs/data-formats.md; a list of files counts as one set."""
    dev: Files = ""
    """Questions whose exact match is logged while the stage runs; confidence is calibrated on them."""
    seq2seq: File = ""
    """Directory of a sequence-to-sequence model of transformers, such as T5 or BART, with its tokenizer, which reads all blocks and writes
    the answer. Empty: the encoder with a span head answers (the paper's)."""
    passages: Literal["retrieved", "given"] = "retrieved"
    """Texts that the reader learns from: blocks that search finds, or the paragraphs that the questions bring (context), without search:
    hundreds of thousands of questions in hours, before a stage over retrieved blocks."""
    presence: Share = 0.0
    """Weight of a second loss, 0 to 1, that teaches whether a block holds an answer at all, so that p is low if no document answers. Above
    0, a new reader is a pointer; a reader without "not here" cannot learn this."""
    publish: Published = "last"
    """Weights that the stage publishes: last; best: those with the highest exact match on dev (without dev: on a quarter of train); or
    better: the last ones, except that each network that got worse on dev is reset to its start (the retriever by recall, then the reader
    by exact match)."""
    start_questions: Count = 0
    """Weight of a pre-trained pointer, in questions. The published reader is the mean of the pre-trained and the fine-tuned weights,
    weighted by this and by the number of training questions, so that a few questions cannot erase what it knows. 0: fine-tuned weights
    only."""
    patience: Count = 0
    """Early stopping: evaluations on dev without a higher exact match after which the stage ends; 0: never."""
    steps: int = 400
    """Optimiser steps."""
    batch: Positive = 16
    """Questions a step over all ranks."""
    lr: float = 5e-4
    """Peak learning rate."""
    retriever_rate: Share = 1.0
    """Learning rate of the retriever as a share of lr, 0 to 1; 0 keeps the retriever as pre-trained."""
    warmup: Count = 40
    """Steps of linear warm-up."""
    beam: Positive = 5000
    """Blocks in the retriever's loss, at most those of the corpus."""
    read: Positive = 5
    """Blocks that the reader reads."""
    evidence: Literal["anywhere", "named"] = "anywhere"
    """Blocks in which an answer counts: anywhere (ORQA), or named: only documents that a question names (positive_ids), if they hold one.
    Equal spans elsewhere are then neither right nor wrong, and the best named block of the beam is always read."""
    rename_rate: Share = 0.5
    """Rate at which names and numbers are swapped in a question and its blocks, so that the reader must read instead of remembering."""
    eval_every: Positive = 100
    """Steps between evaluations on dev."""


def check_finetune(section: FinetuneConfig) -> None:
    """Check that the keys of [finetune] go together. Raises ConfigError."""
    if named(section.train) and section.beam < section.read:
        raise ConfigError("'finetune.beam' is smaller than 'finetune.read'", cure="The reader reads the best of the beam.")
    if section.patience and not named(section.dev) and section.publish == "last":
        cure = 'Name questions in finetune.dev, or set finetune.publish = "best", which holds some of train out.'
        raise ConfigError("'finetune.patience' is given, and there is no dev to watch", cure=cure)
    if section.passages == "given" and section.seq2seq:
        cure = 'Leave out finetune.seq2seq, or set finetune.passages = "retrieved".'
        raise ConfigError("'finetune.passages' is 'given', which teaches the span reader alone", cure=cure)


def check_steps(name: str, stage: IctConfig | WarmConfig | PretrainConfig | FinetuneConfig, accumulate: int) -> None:
    """Check that the stage ``name`` can take its steps, each in so many parts. Raises ConfigError."""
    if stage.steps < 0 or stage.lr <= 0:
        raise ConfigError(f"[{name}] needs steps >= 0 and lr > 0")
    if stage.steps and stage.batch % accumulate:
        problem = f"'{name}.batch' is {stage.batch}, not a multiple of run.accumulate = {accumulate}"
        raise ConfigError(problem, cure="A batch is computed in equal parts.")
