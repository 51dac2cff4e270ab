"""`python -m minorm.cli` is `minorm`."""

import sys

from minorm.cli import main

sys.exit(main())
