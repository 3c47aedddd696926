"""Entry point of `python -m collm`, which torchrun needs: torchrun --nproc-per-node 2 -m collm train …"""

import sys

from .benchmarks.cli import main

sys.exit(main())
