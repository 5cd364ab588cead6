"""Build hook: compiles the search kernel into the package where a C compiler is, for wheels and editable installs alike.

Without a compiler, or when it fails, the package is built all the same and says so: searches then use PyTorch. REALM_NO_KERNEL=1 leaves
the kernel out: a pure wheel, for platforms that have none of their own.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/realm/search/index/native")


class KernelHook(BuildHookInterface):
    """Adds the kernel to a wheel, which thereby fits one platform only (any Python: the kernel knows nothing of Python)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatch before a wheel is put together; ``version`` is "standard" or "editable"."""
        if os.environ.get("REALM_NO_KERNEL") == "1":
            return
        folder = Path(self.root, NATIVE)
        try:
            library = _build_module(folder).build(folder)
        except (RuntimeError, OSError) as error:
            self.app.display_warning(f"the search kernel could not be built, searches will use PyTorch: {error}")
            return
        if library is None:
            self.app.display_warning("no C compiler found: searches will use PyTorch instead of the native kernel")
            return
        if version == "editable":
            return  # the library lies beside its sources, which is where an editable install looks
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["force_include"][str(library)] = str(NATIVE.relative_to("src") / library.name)


def _build_module(folder: Path) -> ModuleType:
    """native/build.py by its path: the package itself cannot be imported here, its dependencies are not installed yet."""
    spec = importlib.util.spec_from_file_location("realm_native_build", folder / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
