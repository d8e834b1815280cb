# SPDX-License-Identifier: Apache-2.0
"""What the recorded events say of the program: its processes, tasks, messages, waits and steps."""
