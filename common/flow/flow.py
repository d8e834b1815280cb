"""A flow is a value: who reads what, who emits how many bytes. It knows nothing of Ray.

To add a flow, write a function of Sizes that returns a Flow and name it in FLOWS; every script,
check, picture and test then knows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from common.flow.demo_sizes import Sizes

DRIVER = "driver"


@dataclass(frozen=True)
class Role:
    """One model: the names it reads from (a role or DRIVER), in argument order, and what it emits."""

    name: str
    reads: tuple[str, ...]
    emits_bytes: int
    title: str = ""  # how pictures call it


@dataclass(frozen=True)
class Edge:
    """One message on its way: the same source may feed several readers."""

    source: str
    reader: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"


@dataclass(frozen=True)
class Flow:
    """Roles in an order in which they can run; the driver emits the query and reads `returns`.

    Every message is one flat tensor (see common/payload/pattern.py).

    Raises:
        ValueError: a name is unknown, used twice or read too early, or a message is never read.
    """

    name: str
    title: str
    query_bytes: int
    roles: tuple[Role, ...]
    returns: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {DRIVER}
        for role in self.roles:
            if role.name in known:
                raise ValueError(f"flow {self.name}: the name {role.name} is taken")
            if not role.reads:
                raise ValueError(f"flow {self.name}: {role.name} reads nothing")
            for source in role.reads:
                if source not in known:
                    raise ValueError(f"flow {self.name}: {role.name} reads {source}, which does not come before it")
            known.add(role.name)
        for source in self.returns:
            if source not in known - {DRIVER}:
                raise ValueError(f"flow {self.name}: it returns {source}, which is none of its roles")
        if not self.returns:
            raise ValueError(f"flow {self.name}: nothing returns to the driver, so it cannot tell when a trip ends")
        for source in known - {edge.source for edge in self.edges}:
            raise ValueError(f"flow {self.name}: nobody reads what {source} emits")
        for name in known:
            if self.emits_bytes(name) < 1:
                raise ValueError(f"flow {self.name}: {name} emits nothing")

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, ordered as their readers run; the driver's own come last."""
        return tuple(edge for name in (*(r.name for r in self.roles), DRIVER) for edge in self.edges_to(name))

    def edges_to(self, reader: str) -> tuple[Edge, ...]:
        """The edges that `reader` reads, in argument order."""
        sources = self.returns if reader == DRIVER else self.role(reader).reads
        return tuple(Edge(source, reader, self.emits_bytes(source)) for source in sources)

    def edges_from(self, source: str) -> tuple[Edge, ...]:
        """The edges that carry what `source` emits."""
        return tuple(edge for edge in self.edges if edge.source == source)

    def role(self, name: str) -> Role:
        """The role called `name`; KeyError where there is none."""
        return {role.name: role for role in self.roles}[name]

    def emits_bytes(self, name: str) -> int:
        """Bytes of the message that `name` (a role or DRIVER) emits."""
        return self.query_bytes if name == DRIVER else self.role(name).emits_bytes

    @property
    def bytes_per_trip(self) -> int:
        """Bytes that the readers of one trip receive: the sum over the edges."""
        return sum(edge.bytes for edge in self.edges)

    @property
    def largest_message_bytes(self) -> int:
        return max(edge.bytes for edge in self.edges)


def online_dpo(sizes: Sizes) -> Flow:
    """ChatLearn's online DPO: policy -> reference and reward, reference -> reward -> trainer."""
    return Flow(
        name="online-dpo",
        title="online DPO",
        query_bytes=sizes.query_bytes,
        roles=(
            Role("policy", (DRIVER,), sizes.policy_bytes, "policy inference"),
            Role("reference", ("policy",), sizes.reference_bytes, "reference"),
            Role("reward", ("policy", "reference"), sizes.reward_bytes, "reward"),
        ),
        returns=("reward",),
    )


def chain(payload_bytes: int, roles: int) -> Flow:
    """Driver -> role-1 -> role-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"role-{index}" for index in range(1, roles + 1))]
    links = tuple(Role(name, (before,), payload_bytes) for before, name in pairwise(names))
    title = f"chain of {roles}" if roles > 1 else "round trip"
    return Flow(f"chain-{roles}" if roles > 1 else "round-trip", title, payload_bytes, links, returns=(names[-1],))


def scatter_gather(payload_bytes: int, roles: int) -> Flow:
    """The driver sends one message to every role at once and waits for all their answers."""
    names = tuple(f"role-{index}" for index in range(1, roles + 1))
    answers = tuple(Role(name, (DRIVER,), payload_bytes) for name in names)
    return Flow(f"scatter-gather-{roles}", f"scatter-gather of {roles}", payload_bytes, answers, returns=names)


FLOWS = {"online-dpo": online_dpo}
# The microbenchmarks of Ray's compiled-graphs article, and how many roles each has without --roles.
MICROBENCHMARKS = {"round-trip": (chain, 1), "chain": (chain, 4), "scatter-gather": (scatter_gather, 4)}


def build_flow(flags: Mapping[str, Any]) -> Flow:
    """The flow that the flags (or a record's arguments) ask for.

    Raises:
        ValueError: the sizes do not make a flow, or a flag is for another one.
    """
    name, payload_bytes, roles = flags["flow"], flags.get("payload_bytes"), flags.get("roles")
    knobs = ("batch_size", "prompt_seq_len", "max_new_tokens", "num_samples")
    if name in FLOWS:
        if payload_bytes is not None or roles is not None:
            raise ValueError(f"--payload-bytes and --roles are for {', '.join(MICROBENCHMARKS)}: leave them out")
        return FLOWS[name](Sizes(**{knob: flags[knob] for knob in knobs}))
    for knob in knobs:
        if flags.get(knob) is not None:
            raise ValueError(f"--{knob.replace('_', '-')} is for {', '.join(FLOWS)}: give {name} --payload-bytes")
    make, usual_roles = MICROBENCHMARKS[name]
    if name == "round-trip" and roles not in (None, 1):
        raise ValueError("a round trip has one role: leave --roles out, or use --flow chain")
    return make(1024 if payload_bytes is None else payload_bytes, usual_roles if roles is None else roles)
