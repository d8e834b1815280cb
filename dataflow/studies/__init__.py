# SPDX-License-Identifier: Apache-2.0
"""One folder per study. Each adds to the laboratory what dataflow/study.py describes."""
