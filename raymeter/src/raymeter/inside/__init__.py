# SPDX-License-Identifier: Apache-2.0
"""Code that runs inside of the user's processes. It needs the standard library and Ray, and changes no result."""
