"""`python -m minorm.cli` does the same as `minorm`."""

import sys

from minorm.cli import main

sys.exit(main())
