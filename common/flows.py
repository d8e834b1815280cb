"""A flow is a value: who reads what, who emits how many bytes. It knows nothing of Ray.

To add a flow, write a function of Sizes that returns a Flow and name it in FLOWS; every script,
check, picture and test then knows it.
"""

from dataclasses import dataclass

from common.sizing import INT64_BYTES, Sizes

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

    Every message is a flat int64 tensor of shape (bytes / 8,).

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
            if self.emits_bytes(name) < INT64_BYTES or self.emits_bytes(name) % INT64_BYTES:
                raise ValueError(f"flow {self.name}: {name} emits {self.emits_bytes(name)} B, no multiple of 8")

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


FLOWS = {"online-dpo": online_dpo}
