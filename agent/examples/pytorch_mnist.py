#!/usr/bin/env python3
"""A PyTorch program of one line more than without us. Run it with any launcher:

    deft run --nproc 2 -- python3 pytorch_mnist.py [EPOCHS]
    torchrun --nproc_per_node 2 pytorch_mnist.py [EPOCHS]
"""
import gzip
import os
import sys

import torch

import deft.torch

DATA = os.environ.get("DEFT_DATA_DIR", "/usr/share/datasets/fashion-mnist")


def load(name, header, shape):
    with gzip.open(os.path.join(DATA, name)) as stream:
        return torch.frombuffer(bytearray(stream.read()[header:]), dtype=torch.uint8).view(shape)


def data(part):
    images = load(f"{part}-images-idx3-ubyte.gz", 16, (-1, 784)).float().div(255).sub(0.286)
    return images.div(0.353), load(f"{part}-labels-idx1-ubyte.gz", 8, (-1,)).long()


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rank = int(os.environ.get("DEFT_RANK", os.environ.get("RANK", "0")))
    world = int(os.environ.get("DEFT_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(),
                                torch.nn.Linear(256, 256), torch.nn.ReLU(),
                                torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    model, optimizer = deft.torch.wrap(model, optimizer, batch_size=256)  # the one line

    images, labels = data("train")
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for batch in order[:len(order) // (256 * world) * 256 * world].view(-1, world, 256):
            loss = torch.nn.functional.cross_entropy(model(images[batch[rank]]),
                                                     labels[batch[rank]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            deft.torch.report_loss(model, loss)
        deft.torch.drain(model)  # all ranks alike: before an evaluation or a checkpoint
        with torch.no_grad():
            test_images, test_labels = data("t10k")
            right = (model(test_images).argmax(1) == test_labels).float().mean()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, test accuracy {100 * right:.2f} %")


if __name__ == "__main__":
    main()
