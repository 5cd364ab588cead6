"""The stage "finetune": open-domain question answering."""
