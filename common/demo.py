# SPDX-License-Identifier: Apache-2.0
"""Name the times that the demo RayCG-ChatLearn reports. They are of another machine, with GPUs, and of another clock.

Source: kevin85421/RayCG-ChatLearn, README.md.
"""

from common.sizes import EDGES, message_bytes

QUEUE_SECONDS = 279.23  # messages go through queues in the driver
GRAPH_SECONDS = 35.37  # a compiled graph, with NCCL
ITERATIONS = 100  # that these times are of
SIZES = message_bytes(batch_size=1024, prompt_seq_len=4096)
ITERATION_BYTES = sum(SIZES[sender] for sender, _ in EDGES)
