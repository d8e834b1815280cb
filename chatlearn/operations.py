"""What the driver of queues does, counted as it is done, episode by episode."""

import time
from collections import Counter

from common.errors import RunFailed
from common.payload.leaves import payload_bytes

OPERATIONS = (
    "queue_actors", "driver_put", "driver_get", "driver_qsize", "driver_payload_gets", "driver_payload_bytes",
    "model_tasks", "stream_dataset_get", "stream_dataset_qsize", "trainer_queue_actors", "trainer_put", "trainer_get",
    "trainer_blocking_gets",
)  # fmt: skip


class Operations:
    """Those of each episode; what comes before the first one is in none of them."""

    def __init__(self, crew):
        self.crew, self.options = crew, crew.plan.options
        self.now, self.before, self.episode = Counter(), [], 0

    def count(self, name, number=1):
        self.now[name] += number

    def begins(self):
        """Before each message: whether it is the first one of an episode."""
        begins = self.episode != self.crew.episode
        if begins:
            self.episode = self.crew.episode
            self.before.append(self.now)
            self.now = Counter()
        self.count("messages")
        return begins

    def materialised(self, payload):
        """A payload that the driver has taken in. Counting its bytes is the suite's work, not the transport's."""
        begin = time.perf_counter()
        self.count("driver_payload_gets")
        self.count("driver_payload_bytes", payload_bytes(payload))
        self.crew.driver.harness_seconds += time.perf_counter() - begin
        return payload

    def facts(self):
        """Of one timed episode; the others that are as long must have been alike."""
        length, options = self.options.trips_in_a_row, self.options
        first = 1 + -(-options.warmup // options.in_flight)
        timed = [*self.before, self.now][1 + first :]
        whole = [{name: found[name] for name in OPERATIONS} for found in timed if found["messages"] == length]
        whole = whole[options.relay_episodes - 1 :]  # before that there were fewer samples to train on
        # How many steps there are is then for the user's function to say, episode by episode.
        alike = [name for name in OPERATIONS if not (options.relay_sample and name.startswith("trainer_"))]
        for found in whole:
            unlike = [name for name in alike if found[name] != whole[0][name]]
            if unlike:
                raise RunFailed(f"episodes differ in {', '.join(unlike)}: {found} and {whole[0]}")
        sizes = {task: found for own in self.crew.ask("message_bytes", length).values() for task, found in own.items()}
        return {"operations": whole[0] if whole else {}, "message_bytes": sizes}
