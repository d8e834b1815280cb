# SPDX-License-Identifier: Apache-2.0
"""Run `python -m raymeter`."""

import sys

from raymeter.command_line import main

if __name__ == "__main__":
    sys.exit(main())
