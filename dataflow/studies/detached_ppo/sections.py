# SPDX-License-Identifier: Apache-2.0
"""Say how rounds are shown: as updates of parameters, whose parts the study of weights measures, if it is there."""

from dataflow.study import load, studies

SECTIONS = (
    {"detached-ppo": load("weights", "sections:update_table")("detached-ppo")}
    if "weights" in studies()
    else {}
)
