# SPDX-License-Identifier: Apache-2.0
"""The suite: it measures how long the messages of a flow take over many transports (python3 -m dataflow)."""
