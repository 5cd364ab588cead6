"""Hooks of MkDocs (mkdocs.yml): pages that lie outside docs/ join the site, and links between them and the pages of docs/ follow."""

import os
import re
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
LINK = re.compile(r"(\]\()([^)#:]+)((?:#[^)]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/ under their paths in the repository, without a place in the navigation."""
    for name in OUTSIDE:
        if (ROOT / name).is_file():
            page = File.generated(config, name.replace("README.md", "index.md"), abs_src_path=str(ROOT / name))
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository become links of the site."""
    here = PurePosixPath(page.file.src_uri)
    source = here if here.as_posix() in OUTSIDE or here.parts[0] == "benchmarks" else PurePosixPath("docs") / here

    def of_the_site(found: re.Match[str]) -> str:
        target = os.path.normpath(source.parent / found[2])
        name = target.removeprefix("docs/").replace("benchmarks/results/README.md", "benchmarks/results/index.md")
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
