"""The stage "pretrain": REALM pre-training, and what it shows of itself."""
