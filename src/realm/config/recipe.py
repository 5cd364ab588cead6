"""What a recipe holds: frozen dataclasses with a docstring per field, which becomes --help."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunConfig:
    """What holds for every stage."""

    seed: int = 0
    """Seed of every random choice."""
    threads: int = 2
    """CPU threads of the trainer; results are bit-identical only for the same number."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    bf16: bool = False
    """Autocast the networks to bfloat16 where the hardware multiplies it; elsewhere they stay in float32."""
    optimizer: str = "adamw"
    """adamw, or bert: as BERT and the released REALM code have it, without bias correction and with their schedule, for parity."""
    schedule: str = "linear"
    """How the learning rate falls from its peak to 0: linear or cosine."""
    gradient_checkpointing: bool = False
    """Compute the layers of the networks again in the backward pass instead of keeping their activations: less memory, a third slower."""
    checkpoint_every: int = 50
    """Steps between checkpoints: what an interrupted stage loses at most. 0 writes none."""
    rank_timeout: float = 600.0
    """Seconds after which a rank (torchrun) that does not answer ends the job."""
    tensorboard: bool | str = "auto"
    """Mirror the metrics for TensorBoard: true, false, or auto: where it is installed."""
    wandb: str = ""
    """Mirror the metrics to this Weights & Biases project; empty: nothing is contacted."""


@dataclass(frozen=True)
class CorpusConfig:
    """Which documents, and how they become blocks."""

    sources: tuple[str, ...] = ()
    """Files or folders of documents, or hf:owner/name; relative paths count from the recipe."""
    format: str = ""
    """How all sources are to be read: jsonl, csv, tsv, parquet, text, markdown, html, beir, datasets, warc, mediawiki; empty looks."""
    id_column: str = ""
    """Column or JSON key with the id; empty looks for id or _id, and names rows by file and number without one."""
    title_column: str = ""
    """Column or JSON key with the title; empty looks for title."""
    text_column: str = ""
    """Column or JSON key with the text; empty looks for text or contents."""
    tokenizer: str = ""
    """A tokenizer directory or hub name; empty trains a WordPiece vocabulary on the documents."""
    vocab_size: int = 8000
    """Entries of a vocabulary trained here."""
    lowercase: bool = True
    """Whether a vocabulary trained here ignores case."""
    block_length: int = 288
    """Wordpieces of a block, title and special tokens counted."""
    tagger: str = "default"
    """What finds the salient spans: default, or parts joined by + (truecase, dates, spacy:MODEL ...; see docs/salient-spans.md)."""
    gazetteer: str = ""
    """A file of phrases, one a line, that are salient besides what the tagger finds."""
    strict: bool = False
    """Stop at the first malformed document instead of counting it."""


@dataclass(frozen=True)
class ModelConfig:
    """The networks. A preset sets the sizes: tiny, mini, small, base."""

    preset: str = "tiny"
    """Named sizes from realm/presets."""
    body: str = ""
    """A directory or hub name of published BERT-like weights, or the directory of a whole REALM such as RUN/stages/pretrain; empty starts
    from nothing with the preset's sizes."""
    hidden: int = 128
    """Width of the body."""
    layers: int = 2
    """Layers of the body."""
    heads: int = 2
    """Attention heads of the body."""
    intermediate: int = 512
    """Width of the feed-forward layers."""
    projection: int = 128
    """Dimensions of an embedding."""
    pooling: str = "pooler"
    """pooler (tanh over [CLS]), cls or mean."""
    segments: bool = True
    """Whether segment ids are fed to the body."""
    layer_norm_eps: float = 1e-12
    """Of the projection's LayerNorm; 1e-12 matches published weights."""
    dropout: float = 0.1
    """On hidden states and on the projected embedding, in training."""
    attention_dropout: float = 0.0
    """On attention weights; anything above 0 makes CPU attention several times slower."""
    span_hidden: int = 64
    """Width of the reader's span representation."""
    max_span: int = 10
    """Longest answer in wordpieces."""
    query_length: int = 64
    """Wordpieces of a query or question, special tokens counted."""


@dataclass(frozen=True)
class IndexConfig:
    """How blocks are searched. It may change at any time: nothing stored depends on it."""

    kind: str = "auto"
    """auto, exact or compressed find exactly the same blocks, and auto chooses by their number. clustered is for serving: approximate,
    with a measured recall at 8 of at least .98, or exact where that cannot be had. faiss-flat (exact, too), faiss-ivf and faiss-ivfpq
    (approximate) need the extra faiss. realm index info measures the recall of them all."""


@dataclass(frozen=True)
class IctConfig:
    """Inverse cloze task: the retriever's warm start."""

    steps: int = 400
    """Optimiser steps."""
    batch: int = 64
    """Pseudo-queries a step over all ranks; the other blocks of the batch are the negatives."""
    accumulate: int = 1
    """Parts in which a rank computes its share of a batch: less memory, the same step. Negatives stay those of the whole batch; embeddings
    are computed twice."""
    lr: float = 1e-3
    """Peak learning rate."""
    warmup: int = 40
    """Steps of linear warm-up."""
    keep_rate: float = 0.1
    """How often the sentence stays in its block."""


@dataclass(frozen=True)
class WarmConfig:
    """The encoder learns to read: masked sentences together with the block they came from."""

    steps: int = 600
    """At most so many optimiser steps; the stage ends earlier once the encoder reads."""
    batch: int = 32
    """Masked sentences a step over all ranks."""
    accumulate: int = 1
    """Parts in which a rank computes its share of a batch: less memory, the same step."""
    lr: float = 3e-3
    """Peak learning rate."""
    warmup: int = 40
    """Steps of linear warm-up."""
    masking: str = "salient"
    """What is hidden: salient, pmi, spans or tokens, as in [pretrain], whose choice is its own: runs that compare masks start alike."""
    hide_rate: float = 0.2
    """Share of a sentence's other wordpieces that are hidden too, so that one sentence gives more to copy."""
    partner_rate: float = 0.5
    """How often the block is another one that holds the hidden span and a neighbour of it: the same names in other words."""
    least_steps: int = 0
    """Steps before the reading test may end the stage."""
    check_every: int = 50
    """Steps between tests on held-out pairs."""
    ratio: float = 3.0
    """The encoder reads when it fills spans at least so many times as often with the block as without."""
    accuracy: float = 0.5
    """... and fills at least this share of held-out spans with the block given."""


@dataclass(frozen=True)
class PretrainConfig:
    """REALM pre-training with a latent retriever."""

    steps: int = 300
    """Optimiser steps."""
    batch: int = 16
    """Masked sentences a step over all ranks."""
    accumulate: int = 1
    """Parts in which a rank computes its share of a batch: less memory, the same step."""
    lr: float = 3e-4
    """Peak learning rate."""
    warmup: int = 20
    """Steps of linear warm-up."""
    candidates: int = 8
    """Documents a query, the null document counted."""
    null: bool = True
    """Whether the empty null document is one of them: what a sentence that needs no document may turn to."""
    sentences: tuple[str, ...] = ()
    """Documents whose sentences are masked instead of the corpus's own, or the directory of a corpus with the same tokenizer; empty: the
    corpus's own."""
    masking: str = "salient"
    """What is hidden: salient (spans found by the tagger), pmi (collocations, in any script), spans (random ones, whole words) or tokens
    (15 % of the wordpieces)."""
    spans: int = 1
    """Spans hidden in a sentence that has so many; tokens does not count in spans."""
    exclude: bool = True
    """Leave out the documents that hold the sentence itself. false is for experiments: the retriever then learns to find only those."""
    exclude_overlap: int = 0
    """Leave out documents, too, that share so many wordpieces in a row with the sentence, such as 12; 0: only those that hold all of it."""
    marginal: str = "token"
    """token (released code) or joint (the paper's formula)."""
    objective: str = "marginal"
    """What teaches the retriever: marginal (REALM), emdr2 (the posterior of the documents) or distill (their likelihoods alone)."""
    temperature: float = 1.0
    """Of the likelihoods that distill copies; higher is softer."""
    in_batch: bool = False
    """Whether the documents of a batch's other sentences count as wrong ones in the retriever's softmax."""
    from_ict: bool = True
    """Start from ICT's embedder; false skips the stage and starts from a fresh one."""
    from_warm: bool = True
    """Start from the warm stage's encoder; false skips the stage and starts from a fresh one, which has to be forced."""
    separate_embedders: bool = False
    """Give documents an embedder of their own, which starts as a copy of ICT's, instead of one for queries and documents."""
    refresh: str = "process"
    """Who embeds the corpus again: process (a refresher beside the trainer), inline (the trainer itself: same seed, same weights), external
    (realm refresh RUN, started by somebody else), frozen (nobody: the first index stays)."""
    refresh_every: int = 50
    """Steps between refreshes of the index."""
    held_out: int = 100
    """Sentences, at most a tenth, that are never trained on: what retrieval is worth is measured on them. 0 holds out none."""
    eval_every: int = 100
    """Steps between two evaluations on them; also before the first step and after the last."""
    publish: str = "last"
    """Which weights the stage publishes: last, or best: those of the highest marginal utility on held-out sentences."""
    probe_queries: int = 200
    """Fixed masked sentences whose retrieval is measured at every refresh."""
    stop_on_collapse: bool = False
    """End the stage when the retriever collapses, instead of only saying so."""
    force: bool = False
    """Start although the encoder has not passed the reading test of the warm stage."""


@dataclass(frozen=True)
class RefresherConfig:
    """How the corpus is embedded again while pre-training goes on; may change at any time."""

    threads: int = 1
    """CPU threads of each process that embeds."""
    workers: int = 1
    """Processes that embed."""
    devices: tuple[str, ...] = ()
    """Devices of these processes, in turn, such as cuda:1; empty: the trainer's."""
    nice: int = 10
    """By how much a refresher on the trainer's machine gives way to it."""
    staleness_limit: int = 0
    """Steps without a fresher index after which the trainer waits for one; 0: five times pretrain.refresh_every."""
    deadline: float = 600.0
    """Seconds that the trainer waits without a sign of the refresher."""
    budget: float = 1.0
    """Share of the blocks that a refresh embeds; the others keep their vectors (a mixed index, searched by the newest parameters). The
    first index and the last are always whole. 1: so is every one."""
    first: str = "oldest"
    """Which blocks a budget below 1 goes to: oldest (embedded longest ago) or retrieved (most often retrieved since they were embedded)."""
    replay: str = ""
    """swaps.jsonl of another run of this recipe: swap at its steps instead; same seed, same threads, same weights."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Open-domain question answering."""

    preset: str = ""
    """few-shot: what suits 8 to 200 questions (short, watched closely, ended by dev, the best weights); empty: the values below."""
    train: str = ""
    """Questions to learn from, in any format of docs/data-formats.md."""
    dev: str = ""
    """Questions whose exact match is logged while the stage runs; confidence is calibrated on them."""
    reader: str = "span"
    """What answers: span, the encoder with a span head (the paper's), or generative, a model that reads all blocks and writes."""
    seq2seq: str = ""
    """The directory of that model: a T5, BART or any other sequence-to-sequence model of transformers, with its tokenizer."""
    objective: str = "marginal"
    """What the span reader raises: marginal, all spans that equal an answer together (ORQA), or hard-em, only the likeliest of them."""
    documents: str = "frozen"
    """Whether the document side learns too: frozen (ORQA, REALM) or trained, with the index refreshed while the stage runs."""
    refresh_every: int = 100
    """Steps between refreshes of the index where documents are trained; the trainer embeds the whole corpus each time."""
    publish: str = "last"
    """Which weights the stage publishes: last, or best: those of the highest exact match on dev; without dev, a quarter of train is dev."""
    patience: int = 0
    """Evaluations on dev without a higher exact match after which the stage ends; 0: it takes all its steps."""
    steps: int = 400
    """Optimiser steps."""
    batch: int = 16
    """Questions a step over all ranks."""
    accumulate: int = 1
    """Parts in which a rank computes its share of a batch: less memory, the same step."""
    lr: float = 5e-4
    """Peak learning rate."""
    warmup: int = 40
    """Steps of linear warm-up."""
    beam: int = 5000
    """Blocks over which the retriever's loss runs; bounded by the corpus."""
    read: int = 5
    """Blocks that the reader reads."""
    match: str = "wordpiece"
    """How answers are found in blocks: wordpiece (Hugging Face's REALM), raw (characters, as the TensorFlow release's retriever) or
    normalised (words, as they are scored). The last two need the extra eval."""
    rename_rate: float = 0.5
    """How often names and numbers are swapped for others in a question and its blocks alike: the reader must read, not remember."""
    eval_every: int = 100
    """Steps between evaluations on dev."""


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation after each stage."""

    qa: str = ""
    """Questions to evaluate on, in any format of docs/data-formats.md."""
    k: tuple[int, ...] = (1, 5, 20, 100)
    """Depths at which recall is measured."""
    match: str = "wordpiece"
    """How recall by answer finds answers in blocks: wordpiece, raw or normalised, as in [finetune]."""
    read: int = 0
    """Blocks that are read for an answer; 0: as many as in fine-tuning. Reading more than that is slower and often better."""
    baselines: bool = False
    """Also fine-tune closed book and BM25 + reader, under the same steps and seed."""
    closed_book_epochs: int = 30
    """Passes of the closed-book baseline over the training questions; its training-set EM tells whether they suffice."""


@dataclass(frozen=True)
class Recipe:
    """Everything a run depends on."""

    run: RunConfig = field(default_factory=RunConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    ict: IctConfig = field(default_factory=IctConfig)
    warm: WarmConfig = field(default_factory=WarmConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    refresher: RefresherConfig = field(default_factory=RefresherConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)

    @property
    def read(self) -> int:
        """Blocks that are read for an answer."""
        return self.eval.read or self.finetune.read
