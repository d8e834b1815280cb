# SPDX-License-Identifier: Apache-2.0
"""ActorPool.map calls a partial that holds a tokenizer, so the whole vocabulary is pickled for each text.

Source: ray-project/ray#907, ray-project/ray#755
Cause: the same content is sent again
Or: Python objects in the pickle
"""

import functools

import ray
from measured import FIXED, measured_steps
from ray.util import ActorPool


class Tokenizer:
    def __init__(self):
        self.vocabulary = {f"token-{number}": number for number in range(100_000)}

    def encode(self, text):
        return [self.vocabulary.get(word, 0) for word in text.split()]


def tokenize(tokenizer, text):
    return tokenizer.encode(text)


@ray.remote
class Worker:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def run(self, function, text):
        if function is None:
            return self.tokenizer.encode(text)
        return function(text)


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    tokenizer = Tokenizer()
    reference = ray.put(tokenizer)
    pool = ActorPool([Worker.remote(reference) for _ in range(2)])
    function = None if FIXED else functools.partial(tokenize, tokenizer)
    texts = [f"token-{number} unknown" for number in range(10)]
    for _ in measured_steps(8):
        list(pool.map(lambda worker, text: worker.run.remote(function, text), texts))  # CAUSE


if __name__ == "__main__":
    main()
