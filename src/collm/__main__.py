"""`python -m collm`, for torchrun: torchrun --nproc-per-node 2 -m collm train …"""

import sys

from .benchmarks.cli import main

sys.exit(main())
