"""`python -m minorm` is `minorm`."""

import sys

from minorm.cli import main

sys.exit(main())
