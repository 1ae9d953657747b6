"""`sandbox`: what a plugin may touch; in its manifest and under `plugins.NAME`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from ductile.config.models.fields import (
    Bytes,
    FilePath,
    RawScalar,
    Section,
    Span,
    Whole,
    Word,
    refuse,
    text_of,
)
from ductile.core.jobs.sandbox import NO_NETWORK, WHOLE_NETWORK, SandboxSpec

_NETWORK = "none, all, or a list of TCP ports such as [443]"


def _read_network(value: Any) -> Any:
    if isinstance(value, list | tuple):
        ports = [port.value if isinstance(port, RawScalar) else port for port in value]
        if not all(type(port) is int and 0 < port < 65_536 for port in ports) or not ports:
            refuse("must list ports from 1 to 65535", allowed=_NETWORK)
        return tuple(ports)
    text = text_of(value, "a word or a list of ports")
    if text not in (NO_NETWORK, WHOLE_NETWORK):
        refuse("is not a valid network access", allowed=_NETWORK)
    return text


Network = Annotated[
    str | tuple[int, ...],
    BeforeValidator(_read_network),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [NO_NETWORK, WHOLE_NETWORK]},
                {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            ]
        }
    ),
]
SandboxLevel = Annotated[Literal["off", "best_effort", "enforce"], Word]


class SandboxSettings(Section):
    """What the processes of a plugin may touch. Of manifest and configuration, the narrower
    counts; the configuration chooses the level."""

    level: SandboxLevel | None = Field(
        default=None,
        description="`enforce`: the plugin does not run where the kernel cannot enforce all of it; "
        "`best_effort`: it runs, and what is not enforced is reported; `off`: no sandbox. Default: "
        "as its manifest says, else `best_effort`.",
    )
    read: tuple[FilePath, ...] | None = Field(
        default=None,
        description="Files and directories that it may read, in addition to its own directory, its "
        "interpreter and the system's libraries.",
        examples=[["/srv/reports"]],
    )
    write: tuple[FilePath, ...] | None = Field(
        default=None,
        description="Files and directories that it may read and write, in addition to its "
        "workspace and a private temporary directory.",
        examples=[["/srv/reports/out"]],
    )
    network: Network | None = Field(
        default=None,
        description="`none`, `all`, or the TCP ports that it may connect to; UDP is open unless it "
        "is `none`, the default.",
        examples=[[443]],
    )
    memory: Bytes | None = Field(
        default=None, description="Memory of each of its processes.", examples=["512MB"]
    )
    processes: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Processes and threads that it may start, counted from those that run on the "
        "machine when the job starts; without effect if the gateway runs as root.",
        examples=[64],
    )
    cpu_time: Span | None = Field(
        default=None, description="Processor time of each of its processes.", examples=["1m"]
    )
    file_size: Bytes | None = Field(
        default=None, description="Size of each file that it writes.", examples=["100MB"]
    )

    def to_spec(self) -> SandboxSpec:
        return SandboxSpec(
            level=self.level,
            read=None if self.read is None else tuple(map(str, self.read)),
            write=None if self.write is None else tuple(map(str, self.write)),
            network=self.network,
            memory=self.memory,
            processes=self.processes,
            cpu_time=self.cpu_time,
            file_size=self.file_size,
        )
