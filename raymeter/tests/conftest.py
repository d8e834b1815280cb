# SPDX-License-Identifier: Apache-2.0
"""Tests of raymeter: run `pytest` in the folder above."""
