"""Hooks of MkDocs (mkdocs.yml): pages and notebooks outside docs/ join the site, and links between them and docs/ follow."""

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent
OUTSIDE = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks" / "results").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LINK = re.compile(r"(\]\()([^)#:]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ under their paths in the repository, without a place in the navigation."""
    for name in OUTSIDE:
        if (ROOT / name).is_file():
            page = File.generated(config, name.replace("README.md", "index.md"), abs_src_path=str(ROOT / name))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    for path in NOTEBOOKS:
        files.append(File.generated(config, f"examples/{path.stem}.md", content="\n\n".join(as_markdown(path))))
    return files


def as_markdown(notebook: Path) -> Iterator[str]:
    """The cells of a notebook as parts of a page: words, code, and what the code printed and drew."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source.rstrip(';')}\n```"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                picture = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
                yield f"![plot](data:image/svg+xml;base64,{picture})"
            elif text := "".join(output.get("text") or data.get("text/plain", "")).strip("\n"):
                yield f"```text\n{text}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository become links of the site."""
    here = PurePosixPath(page.file.src_uri)
    source = here if here.as_posix() in OUTSIDE or here.parts[0] in ("benchmarks", "examples") else PurePosixPath("docs") / here

    def of_the_site(found: re.Match[str]) -> str:
        target = os.path.normpath(source.parent / found[2])
        name = target.removeprefix("docs/").replace("benchmarks/results/README.md", "benchmarks/results/index.md")
        name = re.sub(r"^(examples/.*)\.ipynb$", r"\1.md", name)
        if files.get_file_from_path(name) is None:
            return found[0]
        return found[1] + os.path.relpath(name, here.parent).replace(os.sep, "/") + found[3]

    return LINK.sub(of_the_site, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Roles of docstrings (``:meth:`` and others) go; the name behind them stays."""
    return re.sub(r":(?:func|class|meth|data|mod|attr):(?=<code>)", "", html)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Say where the site is."""
    print(f"site: {Path(config.site_dir) / 'index.html'}")
