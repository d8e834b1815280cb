"""How long does one batch take through the three models of an RLHF system, over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The models do not compute. They only receive and send messages: int64 tensors of these sizes. Three transports move
the same messages:

    driver-queue   the driver reads each message from a queue and sends it to the next model, as a public demo does
    ref-queue      queues carry references to messages, as in ChatLearn; a model reads the messages of its references
    refs           references go directly from call to call, without a queue

The clock of an iteration starts when the driver takes its query, a tensor that exists already. It stops when the
driver holds the reward model's tensor. Not timed are the start of Ray, a first iteration, 10 more to warm up, and the
verification of every byte after each iteration. Copies of the same bytes by one process (memcpy) are timed before and
after, and stored in the record as a reference.

    python3 simulate_chat_learn_data_flow.py                                    # driver-queue, 100 iterations
    python3 simulate_chat_learn_data_flow.py --transport refs --iterations 20

ray_cg_simulate_chat_learn_data_flow.py moves the same messages by a compiled graph.
"""

from common.flags import parse_flags

if __name__ == "__main__":
    FLAGS = parse_flags("store", __doc__)  # before the imports below, which take seconds

from functools import cache
from statistics import median

import ray
from ray.util.queue import Queue

from common.cluster import ray_cluster
from common.record import recorded_run
from common.timing import Endpoint, count_iterations, measure_memcpy, time_group


class Model(Endpoint):
    """An actor that receives and sends messages in place of a model."""

    def forward(self, *inputs):
        """Return this model's message, after it has received its inputs. Ray moves both through host memory."""
        number = self.receive(*(message.to(self.device) for message in inputs))
        return self.message(number).cpu()


def driver_queue(query, policy, reference, reward):
    """The driver reads each message, once for each reader, and passes it on by value."""
    policy_queue = put(policy.forward.remote(query))
    reference_queue = put(reference.forward.remote(get(policy_queue)))
    reward_queue = put(reward.forward.remote(get(policy_queue), get(reference_queue)))
    return get(reward_queue)


def put(reference):
    """Return the demo's queue for a message: an object of Ray's store, which holds the message's reference."""
    return ray.put([reference])  # in a list, because Ray refuses to put a bare reference


def get(queue):
    """Read the message of a queue into the driver's memory."""
    (reference,) = ray.get(queue)
    return ray.get(reference)


def ref_queue(query, policy, reference, reward):
    """The driver passes each reference through a queue; the message itself goes from model to model."""
    policy_output = policy.forward.remote(through("driver -> policy", ray.put(query)))
    reference_output = reference.forward.remote(through("policy -> reference", policy_output))
    inputs = through("policy -> reward", policy_output), through("reference -> reward", reference_output)
    return ray.get(through("reward -> driver", reward.forward.remote(*inputs)))


def through(edge, reference):
    """Put a reference into the queue of an edge, and take it out again."""
    queue_of(edge).put([reference])  # in a list, because Ray replaces a bare reference by its message
    (reference,) = queue_of(edge).get()
    return reference


@cache
def queue_of(edge):
    """Return the queue of an edge, an actor that is made in the first iteration."""
    return Queue()


def refs(query, policy, reference, reward):
    """The driver passes each reference from call to call; the message itself goes from model to model."""
    policy_output = policy.forward.remote(ray.put(query))
    reference_output = reference.forward.remote(policy_output)
    reward_output = reward.forward.remote(policy_output, reference_output)
    return ray.get(reward_output)


CHAINS = {"driver-queue": driver_queue, "ref-queue": ref_queue, "refs": refs}


def main(flags):
    chain = CHAINS[flags.transport]
    with recorded_run(flags) as run:
        run.memcpy_before_seconds = measure_memcpy(flags.sizes)
        with ray_cluster(flags):
            driver = Endpoint("driver", flags.sizes)
            actor = ray.remote(num_cpus=0, num_gpus=flags.gpus_per_model)(Model)
            policy, reference, reward = models = [
                actor.options(name=name).remote(name, flags.sizes, flags.device)
                for name in ("policy", "reference", "reward")
            ]

            def send(number):
                return chain(driver.message(number), policy, reference, reward)

            # The first iteration and the warm-up have the lowest numbers, by which save_times keeps their times apart.
            for number in count_iterations(flags.warmup, flags.iterations):
                time_group([number], 1, send, driver.receive, run.save_times)  # one at a time; the clock runs only here
                driver.verify(number)
                ray.get([model.verify.remote(number) for model in models])
        run.memcpy_after_seconds = measure_memcpy(flags.sizes)
    print(f"{flags.transport}: {1000 * median(run.seconds):,.1f} ms per iteration (median); record: {flags.output}")
    print(f"Execution time: {sum(run.seconds):.2f} seconds")


if __name__ == "__main__":
    main(FLAGS)
