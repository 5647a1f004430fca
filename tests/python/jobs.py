"""Small jobs that several test files train."""
import os

import torch
import torch.distributed as dist

import deft.torch
import ranks

WORLD = 2
LOSS = torch.nn.functional.mse_loss


def batch(rank, step, size=8):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(size, 6, generator=generator), torch.randn(size, 3, generator=generator)


def linear(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def momentum(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs))


def through(how, model, optimizer, **options):
    """The model and optimizer of DDP or of ours."""
    if how == "deft":
        return deft.torch.wrap(model, optimizer, **options)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["DEFT_MASTER_PORT"])
    dist.init_process_group("gloo", rank=ranks.rank_of(),
                            world_size=int(os.environ["DEFT_WORLD_SIZE"]))
    return torch.nn.parallel.DistributedDataParallel(model, **options), optimizer
