# SPDX-License-Identifier: Apache-2.0
"""Say how other systems are shown beside Ray's and PyTorch's transports."""

from dataclasses import replace

from dataflow.report.suite_tables import CONFIGURATIONS

SECTIONS = {
    name: replace(CONFIGURATIONS, name=name) for name in ("peers", "agentic", "shared-memory")
}
