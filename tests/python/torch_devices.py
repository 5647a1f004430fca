"""Models that are not in host memory. This torch may have no CUDA: then what it would tell is made
up, and what happens on a device is left to tests/gpu/run."""
import unittest
from unittest import mock

import torch

import deft.torch
import ranks
from deft import errors
from deft.torch import devices
from deft.torch.noise import Noise
from deft.torch.states import States


class FullyShardedDataParallel(torch.nn.Linear):
    """Called like torch's, which needs a process group."""


class FSDPModule:
    """What torch 2's fully_shard mixes into a module."""


class Sharded(FSDPModule, torch.nn.Linear):
    """As fully_shard makes them."""


class Stream:
    """As torch.cuda.Stream."""
    cuda_stream = 77


class Runtime:
    """Notes which streams and optimizer states it was told."""

    def __init__(self):
        self.streams = []
        self.states = []

    def stream(self, handle):
        self.streams.append(handle)

    def state_add(self, _address, elements, _dtype):
        self.states.append(elements)


class Spread(torch.nn.Parameter):
    """As a DTensor of torch 2 looks."""

    def to_local(self):
        return self.data[:1]


def wrapped(model):
    return deft.torch.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))


class Devices(unittest.TestCase):
    def test_sharded_models_are_refused(self):
        for inner in (FullyShardedDataParallel(2, 2), Sharded(2, 2)):
            with self.assertRaisesRegex(errors.WrongUse, "module 1 is sharded \\(FSDP\\)"):
                wrapped(torch.nn.Sequential(torch.nn.Linear(2, 2), inner))

    def test_spread_parameters_are_refused(self):
        model = torch.nn.Linear(2, 2)
        model.weight = Spread(model.weight.detach())
        with self.assertRaisesRegex(errors.WrongUse, "parameter weight is sharded \\(DTensor\\)"):
            wrapped(model)

    def test_one_device_is_expected(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2),
                                    torch.nn.Linear(2, 2, device="meta"))
        with self.assertRaisesRegex(errors.WrongUse, "1.weight is on meta and 0.weight on cpu"):
            wrapped(model)
        with self.assertRaisesRegex(errors.WrongUse, "is on meta; expected the host or a CUDA"):
            wrapped(torch.nn.Linear(2, 2, device="meta"))

    def test_devices_have_names(self):
        self.assertEqual(devices.option_of(torch.device("cpu")), b"cpu")
        self.assertEqual(devices.option_of(torch.device("cuda:3")), b"cuda:3")
        with mock.patch("torch.cuda.current_device", return_value=2):
            self.assertEqual(devices.option_of(torch.device("cuda")), b"cuda:2")

    def test_the_present_stream_is_followed(self):
        runtime = Runtime()
        devices.follow(runtime, torch.device("cpu"))
        self.assertEqual(runtime.streams, [])
        with mock.patch("torch.cuda.current_stream", return_value=Stream()) as asked, \
                mock.patch("torch.cuda.is_current_stream_capturing", return_value=False):
            devices.follow(runtime, torch.device("cuda:1"))
            asked.assert_called_once_with(torch.device("cuda:1"))
        self.assertEqual(runtime.streams, [77])

    def test_graphs_are_refused(self):
        with mock.patch("torch.cuda.is_current_stream_capturing", return_value=True):
            with self.assertRaisesRegex(errors.WrongUse, "captured into a CUDA graph"):
                devices.follow(Runtime(), torch.device("cuda:0"))

    def test_state_beside_its_parameter_is_shared(self):
        parameter = torch.nn.Parameter(torch.zeros(5, device="meta"))  # neither has memory here
        optimizer = torch.optim.AdamW([parameter])
        optimizer.state[parameter] = {"step": torch.tensor(1.0),
                                      "exp_avg": torch.zeros(5, device="meta"),
                                      "kept_on_the_host": torch.zeros(3)}
        runtime = Runtime()
        States(runtime, optimizer, []).register()
        self.assertEqual(runtime.states, [5])

    def test_samples_stay_on_the_device(self):
        used, unused = (torch.nn.Parameter(torch.zeros(5, device="meta")) for _ in range(2))
        optimizer = torch.optim.AdamW([used, unused])
        used.grad = torch.zeros(5, device="meta")
        optimizer.state[used] = {"exp_avg_sq": torch.zeros(5, device="meta")}
        sample = Noise(Runtime(), optimizer, 2, "noise")._take_sample()
        self.assertEqual((sample.device.type, sample.numel()), ("meta", 10))

    def test_host_memory_is_seen_where_it_is(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            tensor = torch.arange(6).to(dtype)
            seen = devices.view(tensor.data_ptr(), tensor)
            seen[2] = 9
            self.assertEqual(seen.dtype, dtype)
            self.assertEqual(float(tensor[2]), 9.0)

    def test_nccl_gives_way_for_host_memory(self):
        def body():
            torch.manual_seed(0)
            model = torch.nn.Linear(3, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with self.assertLogs("deft", "WARNING") as logged:
                model, optimizer = deft.torch.wrap(model, optimizer, links="nccl")
                deft.torch.session.LOG.warning("the end")
            torch.manual_seed(ranks.rank_of())
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
            deft.torch.drain(optimizer)
            return "\n".join(logged.output), [p.tolist() for p in model.parameters()]
        first, second = ranks.run(2, body)
        self.assertRegex(first[0], "NCCL is not used, but Gloo")
        self.assertEqual(first[1], second[1])


if __name__ == "__main__":
    ranks.main()
