"""`python -m ductile`."""

from __future__ import annotations

import sys

from ductile.cli import main

sys.exit(main())
