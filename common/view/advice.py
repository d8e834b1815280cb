"""Which transport when: what is not measured. The README's table adds what is."""

# Of a row of the ladder: when to take it, what it needs, copies an edge costs, what breaks it.
ADVICE = {
    "store driver-queue": (
        "never: it is the demo's baseline", "nothing", "two through the driver, pickled", "a driver short of memory",
    ),
    "store ref-queue": (
        "many producers and consumers, any nodes", "a queue actor an edge",
        "pickled in, pickled out, into fresh pages", "a store that fills up spills to disk without an error",
    ),
    "store refs --zero-copy": (
        "the simple way on one node, readers only read", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1", "one in, none out",
        "a reader's write is seen by all; messages under 100 KiB are copied",
    ),
    "rdt gloo": (
        "CPU tensors between actors, any nodes", "a group of all actors; no driver in it", "one, through a socket",
        "a dead actor takes its peers along; the producer must not change the tensor",
    ),
    "rdt nixl": (
        "one-sided reads, RDMA between nodes", "nixl, memory registered once", "one, into fresh pages",
        "the producer must not change the tensor; alpha",
    ),
    "rdt mapped": (
        "actor calls stay as they are, one node", "this suite's transport (common/transport/ring_rdt.py)", "none",
        "a reader that keeps a view holds up the producer three messages later",
    ),
    "graph shm": (
        "a fixed graph on one node, readers own their bytes", "a compiled graph, buffers sized beforehand",
        "one in, one out into fresh pages", "Ray is winding compiled graphs down; a resize makes teardown hang",
    ),
    "graph shm --reuse-buffers": (
        "the same, faster", "one method of Ray's replaced in each reader", "one in, one out", "another version of Ray",
    ),
    "graph zero-copy": (
        "the same, readers only read", "arrays instead of tensors", "one in, none out",
        "a view that is kept blocks the channel two messages later",
    ),
    "graph mapped": (
        "the lowest latency, one node", "producers that write into shared memory", "none",
        "a reader that keeps a view holds up the producer three messages later",
    ),
    "graph mapped --copy-out": (
        "the same, readers own their bytes", "the same, and a buffer in each reader", "one", "the same",
    ),
    "graph nccl": (
        "a GPU for each role", "cupy of torch's CUDA", "one, GPU to GPU", "one GPU a rank; joins need extra methods",
    ),
    "rdt cuda-ipc": (
        "roles that share one GPU", "the same GPU for all, no expandable segments", "none", "any other GPU or node",
    ),
    "torch gloo": (
        "no Ray in the data path", "a process group of your own", "one, through a socket", "a lost rank stops all",
    ),
    "torch multiprocessing": (
        "one program on one node", "no Ray", "none", "the producer must not change the tensor",
    ),
}  # fmt: skip
