"""`python -m lab VERB ...`: what `./lab` runs once the interpreter is chosen."""

import sys

from lab.main import main

sys.exit(main(sys.argv[1:]))
