"""Collectives of ray.util.collective."""

from functools import partial

from dataflow.transports.rdt import BroadcastActor, by_broadcast, collective, group_name


class RayRank(BroadcastActor):
    def all_reduce(self, numbers):
        collective.allreduce(numbers, group_name(self.plan))

    def reduce_scatter(self, result, numbers):
        collective.reducescatter(result, list(numbers.split(len(result))), group_name(self.plan))

    def all_gather(self, result, part):
        collective.allgather(list(result.split(len(part))), part, group_name(self.plan))


TRANSPORTS = {"collectives": partial(by_broadcast, actor_class=RayRank)}
