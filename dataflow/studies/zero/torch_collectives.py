"""Collectives of torch.distributed."""

from functools import partial

import torch.distributed as dist

from dataflow.transports.process_group import Rank, RankActor, by_process_group


class GroupRank(Rank):
    def join(self):
        super().join()
        self.group = dist.new_group(range(1, dist.get_world_size()))  # of the actors; formed by all


class TorchRank(GroupRank, RankActor):
    def all_reduce(self, numbers):
        dist.all_reduce(numbers, group=self.group)

    def reduce_scatter(self, result, numbers):
        dist.reduce_scatter_single(result, numbers, group=self.group)

    def all_gather(self, result, part):
        dist.all_gather_single(result, part, group=self.group)


TRANSPORTS = {"collectives": partial(by_process_group, actor_class=TorchRank, driver_class=GroupRank)}
