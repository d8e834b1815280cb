# SPDX-License-Identifier: Apache-2.0
"""What users see of a profile."""
