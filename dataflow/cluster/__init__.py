# SPDX-License-Identifier: Apache-2.0
"""Simulate flows on clusters that one does not have, from what messages cost on one machine. Nothing is measured."""
