"""Collectives of ray.util.collective."""

import time

import ray

from dataflow.endpoints.actor import Actor
from dataflow.transports.rdt import collective, group_name, make_group
from dataflow.workers.worker_group import Connection, WorkerGroup


class CollectiveRank(Actor):
    """A rank of ZeRO whose collectives are those of ray.util.collective."""

    def all_reduce(self, numbers):
        collective.allreduce(numbers, group_name(self.plan))

    def reduce_scatter(self, result, numbers):
        collective.reducescatter(result, list(numbers.split(len(result))), group_name(self.plan))

    def all_gather(self, result, part):
        collective.allgather(list(result.split(len(part))), part, group_name(self.plan))


def by_collectives(workers: WorkerGroup) -> Connection:
    workers.start(CollectiveRank)
    start, flow, actors = time.perf_counter(), workers.sent_flow, workers.actors
    make_group(workers)

    def submit(query):
        return [actors[task.actor].forward_step.remote(task.name, query) for task in flow.tasks]

    data_paths = {str(edge): "argument or answer of a call" for edge in flow.edges}
    return Connection(submit, ray.get, data_paths, {"group creation": time.perf_counter() - start})


TRANSPORTS = {"collectives": by_collectives}
