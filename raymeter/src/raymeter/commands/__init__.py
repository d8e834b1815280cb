# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command raymeter, one module each, with `main(arguments) -> exit code`."""
