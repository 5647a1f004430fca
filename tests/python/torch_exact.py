"""Exact plans through PyTorch: the same numbers as DistributedDataParallel, to the last bit."""
import os
import unittest

import torch
import torch.distributed as dist

import deft.torch
import ranks


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 300),
                               torch.nn.Tanh(), torch.nn.Linear(300, 4))


def batches(rank: int, n: int):
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(n):
        yield (torch.randn(16, 20, generator=generator),
               torch.randint(4, (16,), generator=generator))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def train(wrapped, optimizer, rank, n, clip=0.0, set_to_none=True):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
    losses = []
    for inputs, labels in batches(rank, n):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(wrapped.parameters(), clip)
        optimizer.step()
        scheduler.step()
        losses.append(float(loss))
    return losses


def with_deft(name, n, **options):
    rank = ranks.rank_of()
    model = model_of(rank)  # different on purpose: rank 0's parameters win
    model, optimizer = deft.torch.wrap(model, OPTIMIZERS[name](model.parameters()))
    losses = train(model, optimizer, rank, n, **options)
    return losses, [p.detach().clone() for p in model.parameters()]


def with_ddp(name, n, **options):
    rank, world = ranks.rank_of(), int(os.environ["DEFT_WORLD_SIZE"])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["DEFT_MASTER_PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = torch.nn.parallel.DistributedDataParallel(model_of(rank))
    optimizer = OPTIMIZERS[name](model.parameters())
    losses = train(model, optimizer, rank, n, **options)
    result = losses, [p.detach().clone() for p in model.parameters()]
    dist.destroy_process_group()
    return result


class Exact(unittest.TestCase):
    def compare(self, name, n=60, **options):
        ours = ranks.run(2, with_deft, name, n, **options)
        theirs = ranks.run(2, with_ddp, name, n, **options)
        for rank in range(2):
            self.assertEqual(ours[rank][0], theirs[rank][0])
            for mine, other in zip(ours[rank][1], theirs[rank][1]):
                self.assertTrue(torch.equal(mine, other))

    def test_sgd_is_bit_equal_to_ddp_for_200_steps(self):
        self.compare("sgd", 200)

    def test_momentum_is_bit_equal_to_ddp(self):
        self.compare("momentum")

    def test_nesterov_is_bit_equal_to_ddp(self):
        self.compare("nesterov")

    def test_adam_is_bit_equal_to_ddp(self):
        self.compare("adam")

    def test_adamw_is_bit_equal_to_ddp_for_200_steps(self):
        self.compare("adamw", 200)

    def test_clipping_sees_averaged_gradients(self):
        self.compare("momentum", clip=0.1)

    def test_gradients_may_be_zeroed_in_place(self):
        self.compare("momentum", set_to_none=False)


if __name__ == "__main__":
    ranks.main()
