"""Training: masked sentences and questions to losses, the loop that minimises them, and the index that follows the parameters.

Stages are ``warm``, ``ict``, ``pretrain`` and ``finetune``; each builds its objects from ``context``, defines one step, and gives it to
``loop``. ``masking`` chooses what is hidden, ``refresh`` keeps the index fresh beside the trainer. Start at ``pretrain/stage.py``."""
