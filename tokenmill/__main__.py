"""python -m tokenmill: the command line."""

import sys

from tokenmill.cli import main

sys.exit(main())
