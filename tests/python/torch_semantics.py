"""What DDP users rely on, on real training in several processes: it behaves, or says why not."""
import copy
import logging
import os
import pickle
import signal
import time
import unittest

import torch

import deft
import deft.torch
import loss_grad_scaler
import ranks
from deft.plan import Plan
from jobs import LOSS, WORLD, batch, equal, linear, momentum, parameters


class Several(torch.optim.SGD):
    """Evaluates its closure as often as it likes."""

    def step(self, closure):  # pylint: disable=signature-differs
        closure()
        return super().step(closure)


class NotFinite(unittest.TestCase):
    @staticmethod
    def with_nan(rule, merge, delay, scaled):
        plain = linear()
        total = sum(p.numel() for p in plain.parameters())
        model, optimizer = deft.torch.wrap(
            plain, torch.optim.SGD(plain.parameters(), lr=0.05), rules=deft.torch.ALL_RULES,
            plan=Plan.uniform(rule, [total], merge, delay).encode())
        scaler = loss_grad_scaler.Scaler(1024.0)
        skipped_by_scaler = 0
        for step in range(12):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            loss = LOSS(model(inputs), labels)
            if step == 5 and ranks.rank_of() == 1:
                loss = loss * float("nan")
            if scaled:
                (loss * scaler.scale).backward()
                skipped_by_scaler += scaler.step(optimizer)
            else:
                loss.backward()
                optimizer.step()
        deft.torch.drain(model)
        return parameters(model), deft.torch.stats(model)["skipped"], skipped_by_scaler

    def check(self, rule, merge, delay, scaled=False):
        results = ranks.run(WORLD, self.with_nan, rule, merge, delay, scaled)
        self.assertTrue(equal(results[0][0], results[1][0]))
        self.assertTrue(all(bool(torch.isfinite(p).all()) for p in results[0][0]))
        self.assertEqual([r[1] for r in results], [1, 1])
        return results

    def test_all_ranks_skip_the_same_update(self):
        for rule, merge, delay in (("exact", 1, 0), ("delayed", 2, 0), ("lookahead", 1, 1),
                                   ("averaged", 2, 1)):
            with self.subTest(rule):
                self.check(rule, merge, delay)

    def test_a_scaler_sees_it_on_every_rank(self):
        results = self.check("exact", 1, 0, scaled=True)
        self.assertEqual([r[2] for r in results], [1, 1])

    def test_a_scaler_needs_exact_plans(self):
        for rule, merge, delay in (("lookahead", 1, 1), ("averaged", 2, 1)):
            with self.subTest(rule):
                results = ranks.run(WORLD, self.with_nan, rule, merge, delay, True, may_fail=True)
                for said in results:
                    self.assertIn("GradScaler", said)


class Buffers(unittest.TestCase):
    @staticmethod
    def statistics():
        torch.manual_seed(ranks.rank_of())
        plain = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5),
                                    torch.nn.Linear(5, 3))
        plain[1].running_mean.fill_(float(ranks.rank_of()))
        model, optimizer = deft.torch.wrap(plain, momentum(plain))
        start = plain[1].running_mean.clone()
        for step in range(4):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            optimizer.step()
        own = plain[1].running_mean.clone()
        deft.torch.drain(model)
        return start, own, plain[1].running_mean.clone(), int(plain[1].num_batches_tracked)

    def test_running_statistics(self):
        results = ranks.run(WORLD, self.statistics)
        self.assertTrue(all(float(r[0].abs().max()) == 0.0 for r in results))
        mean = (results[0][1] + results[1][1]) / 2
        for result in results:
            torch.testing.assert_close(result[2], mean)
            self.assertEqual(result[3], 4)
        self.assertTrue(torch.equal(results[0][2], results[1][2]))


    @staticmethod
    def constants():
        torch.manual_seed(ranks.rank_of())
        plain = linear()
        plain.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
        plain.register_buffer("table", torch.rand(17))
        plain.register_buffer("nothing", torch.zeros(0))
        model, optimizer = deft.torch.wrap(plain, momentum(plain))
        started = [plain.mask.clone(), plain.table.clone()]
        for step in range(3):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            optimizer.step()
            deft.torch.drain(model)
        return equal(started, [plain.mask, plain.table]), started[1]

    def test_constants_stay_to_the_last_bit(self):
        """A mean of three equal numbers is not always that number, and masks hold infinities."""
        results = ranks.run(3, self.constants)
        for kept, table in results:
            self.assertTrue(kept)
            self.assertTrue(torch.equal(table, results[0][1]))


class Refusals(unittest.TestCase):
    """One sentence each, before anything has changed."""

    def refused(self, model, optimizer, text, **options):
        with self.assertRaises(deft.WrongUse) as caught:
            deft.torch.wrap(model, optimizer, **options)
        self.assertIn(text, str(caught.exception))

    def test_what_cannot_be_wrapped(self):
        model = linear()
        self.refused(model, torch.optim.LBFGS(model.parameters()), "LBFGS")
        self.refused(model, Several(model.parameters(), lr=0.1), "closure")
        self.refused(model, momentum(linear()), "not in the model")
        self.refused(model, momentum(model), "guess", rules=("guess",))
        self.refused(model, momentum(model), "delayed_lr_rule", delayed_lr_rule="cube")
        self.refused(torch.nn.DataParallel(model), momentum(model), "model.module")
        frozen = linear().requires_grad_(False)
        self.refused(frozen, momentum(linear()), "no parameter")
        sparse = torch.nn.Embedding(4, 2, sparse=True)
        self.refused(sparse, torch.optim.SGD(sparse.parameters(), lr=0.1), "sparse=False")

    @staticmethod
    def alone(body):
        model = linear()
        wrapped, optimizer = deft.torch.wrap(model, momentum(model))
        return body(model, wrapped, optimizer)

    def sentence(self, body):
        """What `body` is told on a world of one rank."""
        def run():
            try:
                Refusals.alone(body)
            except deft.DeftError as error:
                return f"{type(error).__name__}: {error}"
            return "nothing"
        return ranks.run(1, run)[0]

    def test_a_second_wrap(self):
        self.assertIn("wrapped already", self.sentence(
            lambda model, wrapped, optimizer: deft.torch.wrap(wrapped, optimizer)))
        self.assertIn("wrapped already", self.sentence(
            lambda model, wrapped, optimizer: deft.torch.wrap(model, momentum(model))))

    def test_pickles_and_copies(self):
        for what in (pickle.dumps, copy.deepcopy):
            self.assertIn("state_dict()", self.sentence(lambda m, w, o: what(w)))
            self.assertIn("state_dict()", self.sentence(lambda m, w, o: what(o)))

    def test_unused_parameters_without_the_option(self):
        def body(model, wrapped, optimizer):
            model[0].bias.requires_grad_(False)
            LOSS(wrapped(batch(0, 0)[0]), batch(0, 0)[1]).backward()
        said = self.sentence(body)
        self.assertIn("find_unused_parameters", said)
        self.assertIn("0.bias", said)

    def test_parameters_that_thaw(self):
        def run():
            model = linear()
            model[0].requires_grad_(False)
            wrapped, _ = deft.torch.wrap(model, momentum(model[2]))
            model[0].requires_grad_(True)
            try:
                wrapped(batch(0, 0)[0])
            except deft.WrongUse as error:
                return str(error)
            return "nothing"
        self.assertIn("frozen", ranks.run(1, run)[0])

    def test_parameters_that_move(self):
        def run(rule):
            model = linear()
            total = sum(p.numel() for p in model.parameters())
            wrapped, optimizer = deft.torch.wrap(
                model, momentum(model), plan=Plan.uniform(rule, [total], 1, 0).encode())
            model[0].weight.data = model[0].weight.data.clone()
            try:
                for step in range(3):
                    optimizer.zero_grad()
                    LOSS(wrapped(batch(0, step)[0]), batch(0, step)[1]).backward()
                    optimizer.step()
            except deft.WrongUse as error:
                return str(error)
            return "nothing"
        self.assertIn("before wrap()", ranks.run(1, run, "averaged")[0])
        self.assertEqual(ranks.run(1, run, "exact")[0], "nothing")

    def test_parameters_that_change_their_type(self):
        def change(model, wrapped, optimizer):
            wrapped.double()
            inputs, labels = batch(0, 0)
            LOSS(wrapped(inputs.double()), labels.double()).backward()
        said = self.sentence(change)
        self.assertIn("WrongUse", said)
        self.assertIn("float64", said)
        self.assertIn("before wrap()", said)

        def drained(model, wrapped, optimizer):
            wrapped.double()
            deft.torch.drain(wrapped)
        self.assertIn("float64", self.sentence(drained))

    def test_groups_of_unknown_parameters(self):
        said = self.sentence(lambda model, wrapped, optimizer: optimizer.add_param_group(
            {"params": [torch.nn.Parameter(torch.ones(2))]}))
        self.assertIn("synchronised", said)

    def test_a_drain_before_the_step(self):
        def body(model, wrapped, optimizer):
            LOSS(wrapped(batch(0, 0)[0]), batch(0, 0)[1]).backward()
            deft.torch.drain(wrapped)
        self.assertIn("after the step", self.sentence(body))

    def test_a_drain_without_the_step(self):
        """A GAN's last backward gives the discriminator gradients that it does not step with."""
        def run(rule, merge, delay):
            model = linear()
            total = sum(p.numel() for p in model.parameters())
            wrapped, optimizer = deft.torch.wrap(
                model, momentum(model), plan=Plan.uniform(rule, [total], merge, delay).encode())
            for step in range(5):
                inputs, labels = batch(ranks.rank_of(), step)
                LOSS(wrapped(inputs), labels).backward()
                if step < 4:
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                if step == 3:
                    deft.torch.drain(wrapped)
                    before = parameters(model)
            deft.torch.drain(wrapped)
            return before, parameters(model)
        for rule, merge, delay in (("exact", 1, 0), ("lookahead", 1, 1), ("averaged", 2, 1)):
            with self.subTest(rule):
                results = ranks.run(WORLD, run, rule, merge, delay)
                self.assertTrue(equal(results[0][1], results[1][1]))
                if rule == "exact":
                    self.assertTrue(equal(results[0][0], results[0][1]))

    def test_what_is_not_wrapped(self):
        with self.assertRaises(deft.WrongUse):
            deft.torch.drain(linear())

    def test_after_close(self):
        def body(model, wrapped, optimizer):
            deft.torch.close(wrapped)
            deft.torch.close(wrapped)
            with torch.no_grad():
                wrapped(batch(0, 0)[0])
            deft.torch.drain(wrapped)
        self.assertIn("closed", self.sentence(body))

    def test_different_models(self):
        def run():
            model = torch.nn.Linear(4 + ranks.rank_of(), 2)
            try:
                deft.torch.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
            except deft.Mismatch as error:
                return str(error)
            return "nothing"
        for said in ranks.run(WORLD, run):
            self.assertIn("different tensors", said)

    def test_no_library(self):
        def run():
            model = linear()
            try:
                deft.torch.wrap(model, momentum(model))
            except deft.LibraryNotFound as error:
                return str(error)
            return "nothing"
        self.assertIn("DEFT_LIBRARY", ranks.run(1, run, env={"DEFT_LIBRARY": "absent.so"})[0])

    def test_a_malformed_environment(self):
        def run():
            model = linear()
            try:
                deft.torch.wrap(model, momentum(model))
            except deft.WrongUse as error:
                return str(error)
            return "nothing"
        self.assertIn("DEFT_WORLD_SIZE", ranks.run(1, run, env={"DEFT_WORLD_SIZE": "two"})[0])


class Surprises(unittest.TestCase):
    def warnings(self, **settings):
        """What wrap() and five iterations log, of each rank."""
        def run():
            os.environ.update(settings)
            seen = []
            handler = logging.Handler()
            handler.emit = lambda record: seen.append(record.getMessage())
            logging.getLogger("deft").addHandler(handler)
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            for step in range(5):
                optimizer.zero_grad()
                inputs, labels = batch(ranks.rank_of(), step)
                LOSS(wrapped(inputs), labels).backward()
                optimizer.step()
            deft.torch.close(wrapped)
            return seen
        return ranks.run(WORLD, run)

    def test_without_an_agent_there_is_one_line_of_warning(self):
        for settings, text in (({}, "no agent (DEFT_AGENT_SOCKET is not set)"),
                               ({"DEFT_AGENT_SOCKET": "@nobody"},
                                "no agent answers on socket '@nobody': Connection refused")):
            with self.subTest(text):
                results = self.warnings(**settings)
                self.assertEqual([len(lines) for lines in results], [1, 0])
                self.assertIn(text, results[0][0])

    def test_one_rank_trains_as_without_us(self):
        def run(wrapped):
            model = linear()
            optimizer = momentum(model)
            plain = model
            if wrapped:
                model, optimizer = deft.torch.wrap(model, optimizer)
            for step in range(10):
                optimizer.zero_grad()
                inputs, labels = batch(0, step)
                LOSS(model(inputs), labels).backward()
                optimizer.step()
            return parameters(plain)
        self.assertTrue(equal(ranks.run(1, run, True)[0], ranks.run(1, run, False)[0]))

    def test_an_exception_in_forward_is_survived(self):
        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            for step in range(6):
                inputs, labels = batch(ranks.rank_of(), step)
                try:
                    wrapped(inputs[:, :5])
                except RuntimeError:
                    pass
                optimizer.zero_grad()
                LOSS(wrapped(inputs), labels).backward()
                optimizer.step()
            return parameters(model)
        results = ranks.run(WORLD, run)
        self.assertTrue(equal(results[0], results[1]))

    def test_evaluation_is_no_iteration(self):
        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            for step in range(3):
                optimizer.zero_grad()
                inputs, labels = batch(ranks.rank_of(), step)
                LOSS(wrapped(inputs), labels).backward()
                optimizer.step()
                if ranks.rank_of() == 0:  # on one rank alone
                    wrapped.eval()
                    with torch.no_grad():
                        wrapped(inputs)
                    wrapped.train()
            return deft.torch.stats(wrapped)["iterations"]
        self.assertEqual(ranks.run(WORLD, run), [3, 3])

    def test_forked_children_leave_the_job_alone(self):
        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 32

            def __getitem__(self, i):
                return torch.full((6,), float(i)), torch.zeros(3)

        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2)
            for _ in range(2):
                for inputs, labels in loader:
                    optimizer.zero_grad()
                    LOSS(wrapped(inputs), labels).backward()
                    optimizer.step()
            pid = os.fork()
            if pid == 0:
                try:
                    deft.torch.drain(wrapped)
                except deft.WrongUse:
                    os._exit(7)
                os._exit(1)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            deft.torch.drain(wrapped)
            return status, deft.torch.stats(wrapped)["iterations"]
        self.assertEqual(ranks.run(WORLD, run), [(7, 16), (7, 16)])

    def test_a_killed_rank_is_named_by_the_others(self):
        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            begin = time.monotonic()
            try:
                for step in range(100000):
                    optimizer.zero_grad()
                    inputs, labels = batch(ranks.rank_of(), step % 50)
                    LOSS(wrapped(inputs), labels).backward()
                    optimizer.step()
                    if step == 5 and ranks.rank_of() == 1:
                        os.kill(os.getpid(), signal.SIGKILL)
            except deft.PeerLost as error:
                return str(error), time.monotonic() - begin
            return "nothing", 0
        results = ranks.run(3, run, may_fail=True)
        self.assertIsInstance(results[1], ranks.Killed)
        for said, _ in (results[0], results[2]):
            self.assertIn("rank 1", said)

    def test_a_wish_to_stop_reaches_all_at_once(self):
        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            signal.signal(signal.SIGUSR1, lambda *_: deft.torch.request_stop(wrapped))
            callback = deft.torch.DeftCallback(wrapped)
            for step in range(100):
                if step == 4 and ranks.rank_of() == 1:
                    os.kill(os.getpid(), signal.SIGUSR1)
                optimizer.zero_grad()
                inputs, labels = batch(ranks.rank_of(), step)
                loss = LOSS(wrapped(inputs), labels)
                loss.backward()
                optimizer.step()
                if callback.on_batch_end(loss):
                    break
            callback.on_checkpoint()
            callback.on_train_end()
            return step
        steps = ranks.run(WORLD, run)
        self.assertEqual(steps[0], steps[1])
        self.assertLess(steps[0], 10)


if __name__ == "__main__":
    ranks.main()
