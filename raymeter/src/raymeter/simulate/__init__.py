# SPDX-License-Identifier: Apache-2.0
"""What a step would take after a change: the graph of the recorded events, replayed with shorter times."""
