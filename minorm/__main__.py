"""`python -m minorm` does the same as the command `minorm`."""

import sys

from minorm.cli import main

sys.exit(main())
