"""Our exports, read back by the published classes: every weight that is ours must arrive, bit for bit."""

import json
import subprocess
from pathlib import Path

from ours import Case
from safetensors.torch import save_file

from realm.models.model import RealmModel
from realm.models.published.names import export_tensors, import_tensors, plan_import, published_config, read_published_config


def write_export(case_file: Path, directory: Path) -> None:
    """The model of a case through the importer and out again, as a published directory."""
    case = Case(case_file)
    weights, spec = case.below("weights/"), read_published_config(case.config, case.kind)
    plan = plan_import(case.kind, spec, {name: tuple(tensor.shape) for name, tensor in weights.items()})
    model = RealmModel(spec)
    model.load_state_dict(import_tensors(plan, weights.__getitem__))
    blocks = {plan.block_embeddings: weights[plan.block_embeddings]} if plan.block_embeddings else {}
    rows = sum(len(tensor) for tensor in blocks.values())
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(published_config(case.kind, spec, blocks=rows)), "utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in export_tensors(case.kind, model.state_dict()).items()}
    save_file({**tensors, **blocks}, directory / "model.safetensors", metadata={"format": "pt"})
    save_file(weights, directory / "expected.safetensors")


def check_exports(python: Path, cases: Path, scratch: Path, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Export one case of each class, let the published classes read it, and name for each class what did not arrive."""
    for kind in kinds:
        write_export(min(cases.glob(f"{kind}-*.safetensors")), scratch / kind)
    command = [python, Path(__file__).with_name("reread.py"), scratch]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return {kind: lost(kind, row) for kind, row in found.items()}


def lost(kind: str, row: dict[str, list[str]]) -> list[str]:
    """Names in a class's report that should have arrived. The encoder reads its head, an embedder its pooler."""

    def unread(name: str) -> bool:
        if kind == "encoder":
            return "realm.pooler." in name
        return "cls.predictions." in name or ("realm.pooler." in name and (kind == "reader" or name.startswith("reader.")))

    return [*(name for name in row["missing"] if not unread(name)), *row["unexpected"], *row["differing"]]
