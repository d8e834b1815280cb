"""How long does one batch take through the three models of an RLHF system, over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The models do not compute: they read their messages and send their own. Three transports carry the same messages:

    driver-queue   the driver reads each message from a queue and sends it to the next model, as a public demo does
    ref-queue      queue actors carry references, as in ChatLearn; a model that gets a reference reads the message
    refs           references go from call to call, without a queue

The clock of an iteration starts when the driver takes its query, a tensor that exists already. It stops when the
driver holds the tensor of the reward model. Outside of it are: the start of Ray, a first iteration, a warm-up until
times settle, and the verification of every byte after each iteration.

    python3 simulate_chat_learn_data_flow.py                                     # driver-queue, 100 iterations
    python3 simulate_chat_learn_data_flow.py --transport refs --iterations 20
"""

from common.flags import parse_flags

if __name__ == "__main__":
    FLAGS = parse_flags(__file__, __doc__)  # before the imports below, which take seconds

from functools import cache

import ray
from ray.util.queue import Queue

from common.cluster import ray_cluster
from common.payload import Endpoint
from common.record import print_result, recorded_run
from common.timing import Measurement


@ray.remote(num_cpus=0)
class Model(Endpoint):
    """A model without its computation."""

    def forward(self, *inputs):
        """Receive messages, and return this model's own. Both pass through the host's memory, as Ray's store does."""
        number = self.receive(*(tensor.to(self.device) for tensor in inputs))
        return self.message(number).cpu()


def driver_queue(query, policy, reference, reward):
    """Send each message through the driver: it reads the message from its queue, and passes it on by value."""
    policy_queue = put(policy.forward.remote(query))
    reference_queue = put(reference.forward.remote(get(policy_queue)))
    reward_queue = put(reward.forward.remote(get(policy_queue), get(reference_queue)))
    return get(reward_queue)


def put(reference):
    """Return the demo's queue: a place in the object store that holds the reference of a message."""
    return ray.put([reference])  # in a list, because Ray does not put a bare reference


def get(queue):
    """Read a message from the demo's queue into the memory of the driver."""
    (reference,) = ray.get(queue)
    return ray.get(reference)


def ref_queue(query, policy, reference, reward):
    """Send references through a queue actor per edge. The message itself goes from model to model."""
    policy_output = policy.forward.remote(enqueue("query", ray.put(query)))
    reference_output = reference.forward.remote(enqueue("policy to reference", policy_output))
    inputs = enqueue("policy to reward", policy_output), enqueue("reference to reward", reference_output)
    return ray.get(enqueue("result", reward.forward.remote(*inputs)))


def enqueue(edge, reference):
    """Put a reference into the queue of an edge, and take it out again."""
    queue_of(edge).put([reference])  # in a list, because Ray replaces a bare reference by its message
    (reference,) = queue_of(edge).get()
    return reference


@cache
def queue_of(edge):
    """Return the queue actor of an edge, which is made in the first iteration."""
    return Queue()


def refs(query, policy, reference, reward):
    """Pass references from call to call. The message itself goes from model to model."""
    policy_output = policy.forward.remote(ray.put(query))
    reference_output = reference.forward.remote(policy_output)
    result = reward.forward.remote(policy_output, reference_output)
    return ray.get(result)


TRANSPORTS = {"driver-queue": driver_queue, "ref-queue": ref_queue, "refs": refs}


def main(flags):
    with recorded_run(flags) as run, ray_cluster(flags):
        gpus = 1 / 3 if flags.device == "cuda" else 0
        models = policy, reference, reward = [
            Model.options(name=name, num_gpus=gpus).remote(name, flags.sizes, flags.device)
            for name in ("policy", "reference", "reward")
        ]
        driver = Endpoint("driver", flags.sizes)
        transport = TRANSPORTS[flags.transport]

        def send(number):
            return transport(driver.message(number), policy, reference, reward)

        measurement = Measurement(run, flags)
        for number in measurement.numbers():
            measurement.time(number, send, driver.receive)  # the clock runs only here
            measurement.check(number, [driver.verify(number), *ray.get([model.verify.remote(number) for model in models])])
    print_result(run, flags)


if __name__ == "__main__":
    main(FLAGS)
