"""``python -m realm``."""

import os
import sys

import realm

# Python put the working directory first. Nothing is imported from there, unless this package itself lies there.
if not sys.flags.safe_path and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(realm.__file__))):
    del sys.path[0]

from realm.cli import main

sys.exit(main())
