# SPDX-License-Identifier: Apache-2.0
"""Measure a machine without Ray: what it takes to copy bytes, and to get new memory for them."""
