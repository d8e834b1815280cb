# SPDX-License-Identifier: Apache-2.0
"""Memory of a program: samples of its processes, lives of its objects, and who keeps them."""
