"""Plans as Python objects and as the runtime's canonical bytes.

For a job that should hold one plan (an experiment), or go on with the plan of its checkpoint. The
bytes are those of ``dsched_plan_encode`` (scheduler_core/plan_code.c), little-endian.
"""
import dataclasses
import struct
from typing import List, Sequence, Tuple

RULES = ("exact", "delayed", "lookahead", "averaged")

_MAGIC = 0x4C505344
_VERSION = 1
_HEADER = struct.Struct("<6I")
_FORECAST = struct.Struct("<3q3IQ")


@dataclasses.dataclass
class Plan:
    """What every rank does with every bucket, as a cycle that repeats.

    Attributes:
        rule: "exact", "delayed", "lookahead" or "averaged".
        buckets: ranges [begin, end) of the gradient space: all gradient elements as one vector,
            last parameter first; contiguous from 0.
        merges: iterations per generation, one entry for each generation of the cycle.
        links: for each generation the link of each bucket.
        delays: for each generation and bucket the boundaries from its end to its application.
    """
    rule: str
    buckets: List[Tuple[int, int]]
    merges: List[int]
    links: List[List[int]]
    delays: List[List[int]]

    @staticmethod
    def uniform(rule: str, sizes: Sequence[int], merge: int = 1, delay: int = 0) -> "Plan":
        """One generation per cycle, one link, every bucket with the same delay.

        Args:
            sizes: elements of each bucket, in the order of the gradient space.
        """
        ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
        return Plan(rule, list(zip([0] + ends[:-1], ends)), [merge], [[0] * len(sizes)],
                    [[delay] * len(sizes)])

    def encode(self) -> bytes:
        """Raises ValueError when the lists do not fit together; the runtime checks the rest."""
        n_buckets, n_generations = len(self.buckets), len(self.merges)
        if self.rule not in RULES:
            raise ValueError(f"the rule is {self.rule!r}, expected one of {', '.join(RULES)}")
        if len(self.links) != n_generations or len(self.delays) != n_generations:
            raise ValueError(f"{n_generations} merges need as many lists of links and of delays")
        if any(len(row) != n_buckets for row in self.links + self.delays):
            raise ValueError(f"{n_buckets} buckets need as many links and delays per generation")
        n_links = 1 + max((link for row in self.links for link in row), default=0)
        parts = [_HEADER.pack(_MAGIC, _VERSION, RULES.index(self.rule), n_links, n_buckets,
                              n_generations)]
        parts += [struct.pack("<2Q", *bucket) for bucket in self.buckets]
        parts += [struct.pack("<H", merge) for merge in self.merges]
        parts += [bytes(pair) for links, delays in zip(self.links, self.delays)
                  for pair in zip(links, delays)]
        return b"".join(parts) + _FORECAST.pack(0, 0, 0, 0, 0, 0, 0)

    @staticmethod
    def decode(data: bytes) -> "Plan":
        """Raises ValueError when `data` is not an encoded plan."""
        try:
            magic, version, rule, _, n_buckets, n_generations = _HEADER.unpack_from(data)
            if (magic, version) != (_MAGIC, _VERSION) or rule >= len(RULES):
                raise ValueError(f"these {len(data)} bytes are no plan of version {_VERSION}")
            at = _HEADER.size
            pairs = struct.unpack_from(f"<{2 * n_buckets}Q", data, at)
            at += 16 * n_buckets
            merges = list(struct.unpack_from(f"<{n_generations}H", data, at))
            at += 2 * n_generations
            ops = struct.unpack_from(f"<{2 * n_buckets * n_generations}B", data, at)
        except struct.error as error:
            raise ValueError(f"an encoded plan ends too early: {error}") from None
        rows = [ops[2 * n_buckets * g:2 * n_buckets * (g + 1)] for g in range(n_generations)]
        return Plan(RULES[rule], list(zip(pairs[::2], pairs[1::2])), merges,
                    [list(row[::2]) for row in rows], [list(row[1::2]) for row in rows])
