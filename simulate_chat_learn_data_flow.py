# SPDX-License-Identifier: Apache-2.0
"""How long do the messages of one RLHF step take between its three models, over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The models do not compute. They only receive and send messages: int64 tensors of these sizes. Three transports move
the same messages:

    driver-queue   the driver reads each message and sends it to the next model, as the demo RayCG-ChatLearn does;
                   the demo's queue is a list in the store, with the object reference of a message
    ref-queue      the driver passes object references through queues, as ChatLearn does; Ray moves each message to
                   the model that reads it
    refs           the driver passes object references from call to call, without a queue

The clock of an iteration starts when the driver begins to send its query, a tensor that was made before. It stops when
the driver holds the reward model's tensor. The start of Ray, a first iteration, 10 more to warm up, and verification of
every byte after each iteration are no part of the result. With GPUs, all tensors lie on them, as in the demo, and
messages are copied through host memory inside the clock. To compare, the record also has the time in which one process
copies the message of each arrow once (memcpy); with GPUs, from GPU to GPU, and also between GPU and host memory.

    python3 simulate_chat_learn_data_flow.py                                    # driver-queue, 100 iterations
    python3 simulate_chat_learn_data_flow.py --transport refs --iterations 20

ray_cg_simulate_chat_learn_data_flow.py moves the same messages with a compiled graph (CG).
"""

from common.flags import parse_flags

if __name__ == "__main__":
    FLAGS = parse_flags("store", __doc__)  # before the imports below, which take seconds

from functools import cache
from statistics import fmean, median

import ray
from ray.util.queue import Queue

from common.cluster import ray_cluster, start_models
from common.copies import measure_host_copies, measure_memcpy
from common.cpu_time import CpuTime
from common.record import recorded_run
from common.timing import ScriptEndpoint, count_iterations, time_group


class Model(ScriptEndpoint):
    """An actor that receives and sends messages in place of a model. `receive` copies them to its device."""

    def forward(self, *inputs):
        """Return this model's message, after it has received its inputs. Ray pickles the memory of GPUs too."""
        return self.message(self.receive(*inputs))

    def forward_by_host(self, *inputs):
        """Return the message in host memory, from which each reader copies it to its own GPU."""
        return self.forward(*inputs).cpu()


def driver_queue(query, policy, reference, reward):
    """The driver reads each message, once for each reader, and passes it on by value. On GPUs, from its own one."""
    policy_list = store_list(policy.forward.remote(query))
    reference_list = store_list(reference.forward.remote(read(policy_list)))
    reward_list = store_list(reward.forward.remote(read(policy_list), read(reference_list)))
    return read(reward_list)


def store_list(ref):
    """Return the demo's queue for a message: a list in Ray's store, which has the object reference of the message."""
    return ray.put([ref])  # Ray refuses to put a bare reference


def read(stored_list):
    """Read the message of a list into the driver's memory."""
    (ref,) = ray.get(stored_list)
    return ray.get(ref)


def ref_queue(query, policy, reference, reward):
    """The driver passes each object reference through a queue. Ray moves the message itself from model to model."""
    policy_output = policy.forward_by_host.remote(through("driver -> policy", ray.put(query.cpu())))
    reference_output = reference.forward_by_host.remote(
        through("policy -> reference", policy_output)
    )
    inputs = (
        through("policy -> reward", policy_output),
        through("reference -> reward", reference_output),
    )
    return ray.get(through("reward -> driver", reward.forward_by_host.remote(*inputs)))


def through(edge, ref):
    """Put an object reference into the queue of an edge, and take it out again."""
    # In a list, because Ray would put the message in the place of a bare reference.
    queue_of(edge).put([ref])
    (ref,) = queue_of(edge).get()
    return ref


@cache
def queue_of(edge):
    """Return the queue of an edge. It is an actor, which starts in the first iteration."""
    return Queue()


def refs(query, policy, reference, reward):
    """The driver passes each object reference from call to call. Ray moves the message itself from model to model."""
    policy_output = policy.forward_by_host.remote(ray.put(query.cpu()))
    reference_output = reference.forward_by_host.remote(policy_output)
    reward_output = reward.forward_by_host.remote(policy_output, reference_output)
    return ray.get(reward_output)


CHAINS = {"driver-queue": driver_queue, "ref-queue": ref_queue, "refs": refs}


def main(flags):
    """Measure the transport, save the record, and print the times. Exit with 1 after an error, or 130 after Ctrl-C."""
    chain = CHAINS[flags.transport]
    with recorded_run(flags) as run:
        run.memcpy_before_seconds = measure_memcpy(flags.sizes, flags.device, flags.gpus)
        run.host_copy_seconds = measure_host_copies(flags.sizes, flags.device, flags.gpus)
        with ray_cluster(flags):
            driver = ScriptEndpoint("driver", flags.sizes, flags.device)
            models = start_models(Model, flags)
            policy, reference, reward = models

            def send(number):
                return chain(driver.message(number), policy, reference, reward)

            cpu_time = CpuTime()
            # save_times knows the first iteration and the warm-up by their numbers, and stores their times apart.
            for number in count_iterations(flags.warmup, flags.iterations):
                # One iteration is in flight. The clock runs only here.
                time_group([number], 1, send, driver.receive, run.save_times)
                driver.verify(number)
                ray.get([model.verify.remote(number) for model in models])
            if not flags.address:  # whose processes would count as other programs
                cpu_time.save_machine_use(run)
            owned = [driver.owns_messages()]
            owned += ray.get([model.owns_messages.remote() for model in models])
            run.readers_own_a_copy = all(owned)
        run.memcpy_after_seconds = measure_memcpy(flags.sizes, flags.device, flags.gpus)
    mean = 1000 * fmean(run.seconds)
    middle = 1000 * median(run.seconds)
    time = f"{mean:,.1f} ms per iteration (mean; median {middle:,.1f})"
    print(f"{flags.transport}: {time}; record: {flags.output}")
    print(f"Execution time: {sum(run.seconds):.2f} seconds")


if __name__ == "__main__":
    main(FLAGS)
