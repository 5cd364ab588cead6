"""One fine-tuning step of Hugging Face's RealmForOpenQA (transformers 4.40.2) after another, on the records that bench_finetune.py wrote.

Run by bench_finetune.py in the environment of `make parity`; no code of ours is imported. Prints seconds of each step, and of all
its CPU threads together, as JSON.
"""

import argparse
import json
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tokenizer", choices=("fast", "slow"), required=True)
    arguments = parser.parse_args()

    import numpy as np
    import torch
    from transformers import RealmConfig, RealmForOpenQA, RealmRetriever, RealmTokenizer, RealmTokenizerFast

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    facts = json.loads((arguments.records / "facts.json").read_text("utf-8"))
    kind = RealmTokenizerFast if arguments.tokenizer == "fast" else RealmTokenizer
    tokenizer = kind(str(arguments.records / "vocab.txt"), do_lower_case=True)
    texts = json.loads((arguments.records / "blocks.json").read_text("utf-8"))
    records = np.array([text.encode() for text in texts], dtype=object)
    config = RealmConfig(
        vocab_size=facts["vocabulary"],
        num_block_records=len(texts),
        searcher_beam_size=facts["beam"],
        reader_beam_size=facts["read"],
        reader_seq_len=facts["joint_length"],
        **facts["sizes"],
    )
    model = RealmForOpenQA(config, RealmRetriever(records, tokenizer)).train()
    model.block_emb.data.copy_(torch.from_numpy(np.load(arguments.records / "block_emb.npy")))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    questions = json.loads((arguments.records / "questions.json").read_text("utf-8"))
    seconds, cpu_seconds, found = [], [], []
    for step in range(arguments.steps):
        question = questions[step % len(questions)]
        started, worked = time.perf_counter(), time.process_time()
        ids = tokenizer(question["question"], return_tensors="pt")
        accepted = tokenizer(question["answers"], add_special_tokens=False).input_ids
        output = model(**ids, answer_ids=accepted).reader_output
        optimizer.zero_grad()
        if output.loss.requires_grad:
            output.loss.backward()
            optimizer.step()
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - worked)
        found.append(bool(output.retriever_correct.any()))
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "found": found}))


if __name__ == "__main__":
    main()
