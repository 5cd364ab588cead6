"""``python -m realm``."""

import sys

from realm.cli import main

sys.exit(main())
