# SPDX-License-Identifier: Apache-2.0
"""Get the samples of the object store of a recording."""

from dataclasses import dataclass

from raymeter.profile.reader import Recording


@dataclass(frozen=True)
class StoreSample:
    """Bytes in the object stores of all nodes at one time. Spilled bytes are a sum since the start."""

    time: float
    used: int
    capacity: int
    spilled: int


def store_samples(recording: Recording) -> list[StoreSample]:
    """Return the samples in the order of time; [] if the recording has none."""
    samples = []
    for event in getattr(recording, "stores", []):
        sample = StoreSample(event.time, event.used, event.capacity, event.spilled)
        samples.append(sample)
    return sorted(samples, key=lambda sample: sample.time)
