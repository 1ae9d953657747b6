"""The whole configuration as one frozen value."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from ductile.config import bundled
from ductile.config.models.fields import Defaulted, FilePath, Section, refuse, text_of
from ductile.config.models.http import ApiSettings, TokenSettings, WebhooksSettings
from ductile.config.models.pipeline import PipelineSettings, RouteSettings
from ductile.config.models.plugin import PluginSettings
from ductile.config.models.relay import InstanceSettings, RemoteIngressSettings
from ductile.config.models.service import GatewaySettings, ServiceSettings, StateSettings

DEFAULT_PLUGIN_ROOT = "./plugins"


def _once(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(roots))


def _bundled(value: Any) -> Any:
    """`bundled:` as the directory that it means; anything else is left to be a path."""
    if isinstance(value, dict) and list(value) == [bundled.ROOT.rstrip(":")]:
        # YAML reads it as a key without a value where it is not quoted.
        refuse("must be text", allowed=f'a path, or "{bundled.ROOT}" in quotes')
    return bundled.directory() if text_of(value, "a path") == bundled.ROOT else value


PluginRoot = Annotated[FilePath, BeforeValidator(_bundled)]


class Settings(Section):
    """Attributes are named after the keys of the files, both shapes of a thing brought to one.

    Durations are seconds, sizes bytes, paths absolute. An absent section has its defaults.
    """

    service: ServiceSettings = Field(
        default_factory=ServiceSettings.model_construct, description="How the gateway runs."
    )
    state: StateSettings = Field(description="Where the ledger is.")
    plugin_roots: Annotated[tuple[PluginRoot, ...], AfterValidator(_once)] = Field(
        description="Directories of plugins; the first plugin of a name wins. "
        "`bundled:` are those that come with ductile.",
        examples=[["./plugins", bundled.ROOT]],
    )
    plugins: Mapping[str, Annotated[PluginSettings, Defaulted]] = Field(
        default_factory=dict, description="Plugins by name."
    )
    routes: tuple[RouteSettings, ...] = Field(default=(), description="Events that become jobs.")
    pipelines: tuple[PipelineSettings, ...] = Field(default=(), description="Chains of jobs.")
    api: ApiSettings = Field(
        default_factory=ApiSettings.model_construct, description="The HTTP API."
    )
    webhooks: WebhooksSettings = Field(
        default_factory=WebhooksSettings.model_construct, description="Inbound webhooks."
    )
    tokens: tuple[TokenSettings, ...] = Field(default=(), description="Tokens and shared secrets.")
    instances: tuple[InstanceSettings, ...] = Field(default=(), description="Gateways we relay to.")
    remote_ingress: RemoteIngressSettings = Field(
        default_factory=RemoteIngressSettings.model_construct,
        description="Gateways that relay to us.",
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings.model_construct, description="The agents' endpoints."
    )

    _config_dir: Path = PrivateAttr(Path())
    _secrets: frozenset[str] = PrivateAttr(frozenset())

    @classmethod
    def completed(cls, data: dict[str, Any]) -> dict[str, Any]:
        # Written out, so that they are resolved against the configuration's directory too.
        return {"state": {}, "plugin_roots": [DEFAULT_PLUGIN_ROOT], **data}

    def model_post_init(self, context: Any) -> None:
        context = context or {}
        self._config_dir = context.get("config_dir", Path())
        self._secrets = frozenset(context.get("secrets", ()))

    @property
    def config_dir(self) -> Path:
        """The directory that holds config.yaml."""
        return self._config_dir

    @property
    def secrets(self) -> frozenset[str]:
        """Values that must not leave the process, wherever they stand."""
        return self._secrets

    @property
    def state_dir(self) -> Path:
        """Where lock, socket and workspaces live."""
        return self.state.dir

    @property
    def webhooks_enabled(self) -> bool:
        """Whether the webhook listener is wanted: the section is there."""
        return "webhooks" in self.model_fields_set

    @property
    def all_tokens(self) -> tuple[TokenSettings, ...]:
        """Everyone who may authenticate: `api.auth.tokens` first, then `tokens`."""
        inline = tuple(
            TokenSettings.model_construct(
                name=token.name or f"api.auth.tokens[{index}]",
                key=token.token,
                scopes=token.scopes,
            )
            for index, token in enumerate(self.api.auth.tokens)
        )
        return inline + self.tokens
