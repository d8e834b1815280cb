# SPDX-License-Identifier: Apache-2.0
"""How long do the messages of one RLHF step take between its three models, in one Ray compiled graph?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The messages are those of simulate_chat_learn_data_flow.py, where each iteration makes three calls. Here, the calls are
bound into a graph once, and Ray keeps a channel open for each message. Four transports move the same messages:

    shm        channels in shared memory, into which tensors are written as they are (default without GPUs)
    nccl       NCCL between the GPUs of the models; shared memory for messages to and from the driver (default with a
               GPU for each model)
    cuda-ipc   as nccl, with all models on one GPU: the reader copies from the sender's memory (default with fewer
               GPUs, on x86-64 and without --address)
    pickle     channels in shared memory, into which tensors are pickled

The clock of an iteration starts when the driver begins to send its query, a tensor that was made before. It stops when
the driver holds the reward model's tensor. The start of Ray, the compilation, a first iteration, ten more to warm up,
and the verification of every byte after each iteration are no part of the result. With GPUs, all tensors lie on them,
as in the demo. To compare, the record also has the time in which one process copies the message of each arrow once
(memcpy; five copies, because two models read policy's); with GPUs, from GPU to GPU, and also to and from host memory.

    python3 ray_cg_simulate_chat_learn_data_flow.py                             # 100 iterations
    python3 ray_cg_simulate_chat_learn_data_flow.py --transport pickle --iterations 20
"""

import os

from common.flags import parse_flags

if __name__ == "__main__":
    FLAGS = parse_flags("graph", __doc__)  # before the imports below, which take seconds
    os.environ |= {  # Ray reads them when it is imported
        # The first size of each channel's buffers, which grow at the first larger message. In Ray 2.60, the argument
        # _buffer_size_bytes of experimental_compile has no effect on channels in shared memory.
        "RAY_CGRAPH_buffer_size_bytes": str(max(FLAGS.sizes.values()) + 2**20),
        # Seconds that an iteration may take. After the time of the last one, Ray repeats a read, and NCCL would hang.
        "RAY_CGRAPH_submit_timeout": "300",
        "RAY_CGRAPH_get_timeout": "300",
        "RAY_CGRAPH_read_iteration_timeout_s": "300",
    }

from functools import partial
from statistics import fmean, median

import ray
from ray.dag import InputNode

from common.cluster import ray_cluster, remove_semaphores, start_models
from common.copies import measure_host_copies, measure_memcpy
from common.cpu_time import CpuTime
from common.cuda_ipc import connect_actors
from common.record import recorded_run
from common.sizes import EDGES, MODELS
from common.timing import ScriptEndpoint, count_iterations, time_group


class Model(ScriptEndpoint):
    """An actor that receives and sends messages in place of a model."""

    def forward(self, *inputs):
        """Return this model's message, after it has received its inputs."""
        return self.message(self.receive(*inputs))

    def pass_through(self, message):
        """Return a message as it is: see bind_nccl."""
        return message


def bind_shm(query, policy, reference, reward):
    query = query.with_tensor_transport("shm")
    policy_output = policy.forward.bind(query).with_tensor_transport("shm")
    reference_output = reference.forward.bind(policy_output).with_tensor_transport("shm")
    reward_output = reward.forward.bind(policy_output, reference_output)
    return reward_output.with_tensor_transport("shm")


def bind_nccl(query, policy, reference, reward, transport="nccl"):
    # It changes the query itself. The driver is no rank of NCCL. No hint has a device: Ray 2.60 uses only the one that
    # is registered last, and for the messages that its process sends. By default, a message arrives where it was.
    query.with_tensor_transport("shm")
    policy_output = policy.forward.bind(query).with_tensor_transport(transport)
    reference_output = reference.forward.bind(policy_output).with_tensor_transport(transport)
    # Ray 2.60 cannot compile a method with two NCCL inputs. So each of them ends in a method of its own, in the actor.
    inputs = reward.pass_through.bind(policy_output), reward.pass_through.bind(reference_output)
    return reward.forward.bind(*inputs).with_tensor_transport("shm")


def bind_pickle(query, policy, reference, reward):
    policy_output = policy.forward.bind(query)
    reference_output = reference.forward.bind(policy_output)
    return reward.forward.bind(policy_output, reference_output)


WAIT_SECONDS = 150  # of cuda-ipc, half of what Ray waits, so that an error names the model
CHAINS = {"shm": bind_shm, "nccl": bind_nccl, "cuda-ipc": bind_nccl, "pickle": bind_pickle}
# With these, messages between models never leave the GPUs, and each model checks that.
DIRECT = ("nccl", "cuda-ipc")


def compile_graph(flags, models):
    """Return the compiled graph of the models when its actors have started, and the communicator of cuda-ipc or None.

    With cuda-ipc, raise SuiteError if the models are on different GPUs or nodes.
    """
    chain = CHAINS[flags.transport]
    communicator = None
    if flags.transport == "cuda-ipc":
        by_name = dict(zip(MODELS, models, strict=True))
        communicator = connect_actors(by_name, timeout=WAIT_SECONDS)
        chain = partial(bind_nccl, transport=communicator)
    with InputNode() as query:
        output = chain(query, *models)
    # Each channel gets so many buffers. Ray's default is ten; here, one iteration is in flight.
    graph = output.experimental_compile(_max_inflight_executions=2)
    wait_for_actors(graph)
    return graph, communicator


def wait_for_actors(graph):
    """Wait until all actors of a graph have started: the models, and one that Ray starts beside each graph.

    Ray does not wait for the latter, whose start would take the cores of the first iterations.
    """
    ray.get([actor.__ray_ready__.remote() for actor in graph.actor_to_node_id])


def check_copies(communicator, flags, iterations):
    """Raise SuiteError if a message between two models took another way than CUDA IPC."""
    expected = {}
    for sender, reader in EDGES:
        if "driver" not in (sender, reader):
            expected[sender, reader] = iterations * flags.sizes[sender]
    communicator.require_copied(expected)


def main(flags):
    """Measure the transport, save the record, and print the times. Exit with 1 after an error, or 130 after Ctrl-C."""
    with recorded_run(flags) as run:
        run.memcpy_before_seconds = measure_memcpy(flags.sizes, flags.device, flags.gpus)
        run.host_copy_seconds = measure_host_copies(flags.sizes, flags.device, flags.gpus)
        with remove_semaphores(), ray_cluster(flags):
            driver = ScriptEndpoint("driver", flags.sizes, flags.device)
            models = start_models(Model, flags, flags.transport in DIRECT)  # is_direct
            graph, communicator = compile_graph(flags, models)

            def send(number):
                return graph.execute(driver.message(number))

            def receive(future):
                driver.receive(ray.get(future))

            cpu_time = CpuTime()
            # save_times knows the first iteration and the warm-up by their numbers, and stores their times apart.
            for number in count_iterations(flags.warmup, flags.iterations):
                # One iteration is in flight. The clock runs only here.
                time_group([number], 1, send, receive, run.save_times)
                driver.verify(number)
                ray.get([model.verify.remote(number) for model in models])
            if not flags.address:  # whose processes would count as other programs
                cpu_time.save_machine_use(run)
            if communicator:
                check_copies(communicator, flags, number)
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
