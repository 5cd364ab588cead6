"""Whole runs: the stages in order, each resumable; what a run will cost; the demo."""

from realm.pipeline.demo import Claim, run_demo
from realm.pipeline.plan import plan
from realm.pipeline.run import STAGES, run_recipe

__all__ = ["STAGES", "Claim", "plan", "run_demo", "run_recipe"]
