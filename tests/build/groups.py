"""What process 1 of each pod says when torchrun has put it into a group."""


def says(rank: int, size: int, *, port: int = 40_000) -> str:
    """The line of one pod; groups differ in their ports."""
    place = f"rank {rank} of a group of {size}, with rank 0 at 10.0.0.1 port {port}"
    return f"elastic-pytorch: torchrun trains here as {place}."


def said_by(*names: str, port: int = 40_000) -> dict[str, bytes]:
    """The logs of pods that are a group, ranked in that order."""
    return {name: f"{says(rank, len(names), port=port)}\n".encode() for rank, name in enumerate(names)}
