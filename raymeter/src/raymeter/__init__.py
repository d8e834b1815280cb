# SPDX-License-Identifier: Apache-2.0
"""raymeter shows what an unchanged Ray program spends on moving data, where, and what to change."""

__version__ = "0.1.0"


def explain(value: object) -> None:
    """Print what one message costs with Ray: its fields, its pickle, and other ways to send it, measured here."""
    from raymeter.commands import explain as command  # needs Ray, which `import raymeter` does not

    command.explain(value)
