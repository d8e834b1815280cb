# SPDX-License-Identifier: Apache-2.0
"""The error that users see as one line."""

NO_CLIENT = "Ray Client cannot be recorded. Start the program on a node of the cluster, with ray.init(address='auto')"


class UserError(Exception):
    """Something that the user can correct. Its text is one line: what is wrong, and what to do."""
