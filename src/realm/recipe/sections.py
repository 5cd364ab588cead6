"""Sections of a recipe: frozen dataclasses with a docstring per field, which becomes --help."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Interval, MinLen

from realm.errors import ConfigError
from realm.recipe import training
from realm.recipe.training import FinetuneConfig, IctConfig, PretrainConfig, RefresherConfig, WarmConfig
from realm.recipe.values import MAX_LAYERS, MAX_PIECES, MAX_WIDTH, Count, File, FileList, Files, Positive, Share, Width, named


@dataclass(frozen=True)
class RunConfig:
    """Options of every stage."""

    seed: int = 0
    """Seed of every random choice."""
    threads: Positive = 2
    """CPU threads of the trainer; results are bit-identical only for the same number."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    bf16: bool = False
    """Autocast the networks to bfloat16 where the hardware multiplies it; elsewhere they stay in float32."""
    optimizer: Literal["adamw", "bert"] = "adamw"
    """adamw, or bert: AdamW without bias correction, as in BERT and the released REALM code."""
    accumulate: Positive = 1
    """Parts in which a rank computes its share of a batch: less memory, the same step. In ICT the negatives stay those of the whole batch;
    embeddings are computed twice."""
    checkpoint_every: Count = 50
    """Steps between checkpoints: an interrupted stage loses at most so many. 0 writes none."""


@dataclass(frozen=True)
class CorpusConfig:
    """Documents, and their way to blocks."""

    sources: FileList = ()
    """Files or folders of documents; relative paths count from the recipe."""
    format: str = ""
    """Format of all sources: jsonl, csv, html or another format of docs/data-formats.md; empty: detected."""
    id_column: str = ""
    """Column or JSON key with the id; empty: id or _id; without one, rows are named by file and number."""
    title_column: str = ""
    """Column or JSON key with the title; empty: title."""
    text_column: str = ""
    """Column or JSON key with the text; empty: text or contents."""
    templates: File = ""
    """A TOML or JSON file that says for each relation of triples the sentence it becomes (docs/data-formats.md)."""
    tokenizer: str = ""
    """A tokenizer directory or hub name; empty trains a WordPiece vocabulary on the documents."""
    vocab_size: Annotated[int, Ge(200)] = 8000
    """Entries of a vocabulary trained here."""
    lowercase: bool = True
    """Let a vocabulary trained here ignore case."""
    block_length: Annotated[int, Interval(ge=16, le=MAX_PIECES)] = 288
    """Wordpieces of a block, title and special tokens counted."""
    tagger: str = "default"
    """Tagger of the salient spans: default, or parts joined by + (truecase, dates, hf:MODEL ...; see docs/salient-spans.md)."""
    gazetteer: File = ""
    """A file of phrases, one a line, that are salient in addition to what the tagger finds."""
    document_seconds: Annotated[float, Interval(gt=0, le=86_400)] = 20.0
    """Most seconds of processor time to read one HTML, PDF or Word document; a slower one is counted and left out."""


@dataclass(frozen=True)
class ModelConfig:
    """The networks. A preset sets the sizes: tiny, mini, small, base."""

    preset: str = "tiny"
    """Named sizes from realm/presets."""
    body: str = ""
    """Published weights to start from: a name that realm models lists (minilm), a hub name, a directory, or the directory of a whole REALM
    such as RUN/stages/pretrain. Their tokenizer, pooling and head come with them. Empty starts from nothing with the preset's sizes."""
    hidden: Width = 128
    """Width of the body."""
    layers: Annotated[int, Interval(ge=1, le=MAX_LAYERS)] = 2
    """Layers of the body."""
    heads: Annotated[int, Interval(ge=1, le=MAX_LAYERS)] = 2
    """Attention heads of the body."""
    intermediate: Annotated[int, Interval(ge=1, le=4 * MAX_WIDTH)] = 512
    """Width of the feed-forward layers."""
    projection: Annotated[int, Interval(ge=0, le=MAX_WIDTH)] = 128
    """Dimensions of an embedding, at least 8. 0, the default with a body: the body's own width, or 128 for a body without a head. A
    published sentence embedder has its own."""
    pooling: Literal["pooler", "cls", "mean"] = "pooler"
    """pooler (tanh over [CLS]), cls or mean."""
    segments: bool = True
    """Feed segment ids to the body."""
    dropout: Share = 0.1
    """Dropout of hidden states in training, also in a published body."""
    freeze_words: bool = False
    """Do not train the table of word embeddings, which is half of a small body and has the largest gradient."""
    attention_dropout: Share = 0.0
    """Dropout of attention weights; above 0 it makes attention on a CPU several times slower."""
    span_hidden: Annotated[int, Interval(ge=0, le=MAX_WIDTH)] = 64
    """Width of the reader's span representation; 0: none, a start and an end score are added, which learns faster (docs/finetuning.md)."""
    max_span: Annotated[int, Interval(ge=1, le=MAX_PIECES)] = 10
    """Longest answer in wordpieces."""
    marks: bool = False
    """Mark for the reader, by segments of their own, which wordpieces of a block stand in the question, too, alone or in a row: one from
    nothing need not learn first to find them. Only without a body."""
    query_length: Annotated[int, Interval(ge=8, le=MAX_PIECES)] = 64
    """Wordpieces of a query or question, special tokens counted."""


@dataclass(frozen=True)
class IndexConfig:
    """Search for blocks. It may change at any time: nothing stored depends on it."""

    kind: Literal["auto", "exact", "compressed", "clustered"] = "auto"
    """auto, exact or compressed find exactly the same blocks, and auto chooses by their number. clustered is for serving: approximate,
    with a measured recall at 8 of at least 0.98, or exact where that cannot be reached; it needs the extra faiss. realm index info measures
    the recall of each kind."""


@dataclass(frozen=True)
class RetrievalConfig:
    """Source of the blocks that are read: in pre-training, fine-tuning, answering, search and evaluation."""

    kind: Literal["auto", "hybrid", "dense", "sparse"] = "auto"
    """hybrid (the embedder and BM25, each score scaled by its spread over the best of a query, added), dense (the embedder alone) or sparse
    (BM25 alone). auto: hybrid where model.body names published weights, dense for networks from nothing. Whatever proposes, p(z|x) and what
    the retriever learns from are the embedder's."""
    weight: Annotated[float, Ge(0)] = 1.0
    """Weight of BM25 against the embedder in hybrid search."""
    relevance: Literal["embedder", "sparse"] = "embedder"
    """Scores that give p(z|x) for a question: the embedder's, or BM25's (sparse), which are better while the embedder is untrained; then
    no embedder learns from questions."""
    hops: Annotated[int, Interval(ge=0, le=1)] = 0
    """Links to follow from the blocks that a question finds, in answering and evaluation: 0, or 1 for questions whose answer is on a page
    that the first page links to. With 1, half of the blocks that are read are linked ones. Training follows no links."""


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation after each stage."""

    qa: Files = ""
    """Questions to evaluate on, in any format of docs/data-formats.md; a list of files counts as one set; comparisons also report each."""
    k: Annotated[tuple[Positive, ...], MinLen(1)] = (1, 5, 20, 100)
    """Depths at which recall is measured."""
    read: Count = 0
    """Blocks to read for an answer; 0: as many as in fine-tuning. More are slower and often better."""
    closed_book_epochs: Count = 30
    """Passes of the closed-book baseline over the training questions; its exact match on these shows whether they suffice."""


@dataclass(frozen=True)
class WriteConfig:
    """Prose of a language model over what is read (docs/serving.md). It may change at any time: nothing stored depends on it."""

    url: str = ""
    """Address of an endpoint of OpenAI's protocol: http://localhost:11434/v1. It gets every question with the blocks that were read."""
    model: str = ""
    """Name of the model there."""


@dataclass(frozen=True)
class Recipe:
    """Everything a run depends on.

    Examples:
        >>> from realm.recipe import build_recipe
        >>> recipe = build_recipe({"corpus": {"sources": ["notes/"]}, "ict": {"steps": 200}})
        >>> recipe.ict.steps, recipe.model.hidden
        (200, 128)
    """

    run: RunConfig = field(default_factory=RunConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    ict: IctConfig = field(default_factory=IctConfig)
    warm: WarmConfig = field(default_factory=WarmConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    refresher: RefresherConfig = field(default_factory=RefresherConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    write: WriteConfig = field(default_factory=WriteConfig)

    @property
    def read(self) -> int:
        """Blocks that are read for an answer."""
        return self.eval.read or self.finetune.read

    @property
    def retrieval_kind(self) -> str:
        """hybrid, dense or sparse: what [retrieval] kind comes to."""
        if self.retrieval.kind != "auto":
            return self.retrieval.kind
        return "hybrid" if self.model.body else "dense"

    @property
    def train_files(self) -> tuple[str, ...]:
        """The question files of [finetune] train; none where nothing is fine-tuned."""
        return named(self.finetune.train)

    @property
    def dev_files(self) -> tuple[str, ...]:
        """The question files of [finetune] dev."""
        return named(self.finetune.dev)

    @property
    def eval_files(self) -> tuple[str, ...]:
        """The question files of [eval] qa; none where nothing is asked."""
        return named(self.eval.qa)

    @property
    def writes(self) -> str:
        """URL#MODEL of [write]; empty where nothing is named."""
        return f"{self.write.url}#{self.write.model}" if self.write.url else ""


def check_recipe(recipe: Recipe) -> None:
    """Check that fields which are right on their own go together. Raises ConfigError."""
    for name in ("ict", "warm", "pretrain", "finetune"):
        training.check_steps(name, getattr(recipe, name), recipe.run.accumulate)
    training.check_pretrain(recipe.pretrain)
    if recipe.retrieval.relevance == "sparse" and recipe.retrieval_kind == "dense":
        cure = "Set retrieval.kind to sparse or hybrid, or leave relevance out."
        raise ConfigError("'retrieval.relevance' is 'sparse', and nothing searches by words", cure=cure)
    if recipe.model.marks and recipe.model.body:
        raise ConfigError("'model.marks' is for networks from nothing, and 'model.body' is given", cure="Leave one of them out.")
    if recipe.model.projection < 8 and (recipe.model.projection or not recipe.model.body):
        cure = "Give at least 8; 0 leaves them to the published model.body."
        raise ConfigError(f"'model.projection' cannot be {recipe.model.projection}", cure=cure)
    if bool(recipe.write.url) != bool(recipe.write.model):
        raise ConfigError("[write] needs both url and model", cure="Give both, or leave the section out.")
    if recipe.model.hidden % recipe.model.heads:
        raise ConfigError("'model.hidden' is not a multiple of 'model.heads'")
    training.check_finetune(recipe.finetune)
