"""Data parallel: rank 0's weights for all at first, and gradients that are averaged with each backward."""

from torch import distributed as dist


class DistributedDataParallel:
    def __init__(self, module):
        self.module = module
        for parameter in module.parameters():
            dist.broadcast(parameter, src=0)

    def parameters(self):
        return self.module.parameters()

    def __call__(self, batch):
        given = self.module(batch)
        alone = given.of_sum

        def of_sum():
            alone()
            for parameter in self.module.parameters():
                dist.all_reduce(parameter.grad)
                for index, total in enumerate(parameter.grad.values):
                    parameter.grad.values[index] = total / dist.get_world_size()

        given.of_sum = of_sum
        return given
