"""The whole configuration as one frozen model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from ductile.config import bundled
from ductile.config.loader.secrets import KnownSecrets
from ductile.config.models.alerts import AlertSettings, DeadManSettings
from ductile.config.models.fields import Defaulted, FilePath, Section, refuse, text_of
from ductile.config.models.http import ApiSettings, TokenSettings, WebhooksSettings
from ductile.config.models.pipeline import PipelineSettings, RouteSettings
from ductile.config.models.plugin import PluginSettings
from ductile.config.models.relay import InstanceSettings, RemoteIngressSettings
from ductile.config.models.service import GatewaySettings, ServiceSettings, StateSettings

DEFAULT_PLUGIN_ROOT = "./plugins"


def _drop_duplicates(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(roots))


def _resolve_bundled(value: Any) -> Any:
    """The directory of `bundled:`; other values are returned unchanged."""
    if isinstance(value, dict) and list(value) == [bundled.ROOT.rstrip(":")]:
        # Without quotes, YAML reads it as a key without a value.
        refuse("must be text", allowed=f'a path, or "{bundled.ROOT}" in quotes')
    return bundled.directory() if text_of(value, "a path") == bundled.ROOT else value


PluginRoot = Annotated[FilePath, BeforeValidator(_resolve_bundled)]


class Settings(Section):
    """All settings; attributes have the names of the keys in the files.

    Durations are in seconds, sizes in bytes, paths absolute. An absent section has its defaults.
    """

    service: ServiceSettings = Field(
        default_factory=ServiceSettings.model_construct, description="The gateway process."
    )
    state: StateSettings = Field(description="Location of the ledger.")
    plugin_roots: Annotated[tuple[PluginRoot, ...], AfterValidator(_drop_duplicates)] = Field(
        description="Directories of plugins; the first plugin of a name is used. "
        "`bundled:` is the directory of the plugins that ductile includes.",
        examples=[["./plugins", bundled.ROOT]],
    )
    plugins: Mapping[str, Annotated[PluginSettings, Defaulted]] = Field(
        default_factory=dict, description="Settings of plugins, by name."
    )
    routes: tuple[RouteSettings, ...] = Field(
        default=(), description="Events that start a job of a plugin."
    )
    pipelines: tuple[PipelineSettings, ...] = Field(
        default=(), description="Sequences of jobs that an event starts."
    )
    api: ApiSettings = Field(
        default_factory=ApiSettings.model_construct, description="The HTTP API."
    )
    webhooks: WebhooksSettings = Field(
        default_factory=WebhooksSettings.model_construct, description="Inbound webhooks."
    )
    tokens: tuple[TokenSettings, ...] = Field(
        default=(), description="Bearer tokens and shared secrets."
    )
    instances: tuple[InstanceSettings, ...] = Field(
        default=(), description="Gateways to which events are relayed."
    )
    remote_ingress: RemoteIngressSettings = Field(
        default_factory=RemoteIngressSettings.model_construct,
        description="Events relayed from other gateways.",
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings.model_construct, description="Endpoints for agents."
    )
    alerts: tuple[AlertSettings, ...] = Field(
        default=(), description="Rules for problems that are reported to a plugin or pipeline."
    )
    dead_man: DeadManSettings | None = Field(
        default=None, description="Requests to an outside monitor while the gateway is healthy."
    )

    _config_dir: Path = PrivateAttr(Path())
    _known_secrets: KnownSecrets = PrivateAttr(KnownSecrets())

    @classmethod
    def derive_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        # As values of a file, so that they are resolved relative to its directory.
        return {"state": {}, "plugin_roots": [DEFAULT_PLUGIN_ROOT], **data}

    def model_post_init(self, context: Any) -> None:
        context = context or {}
        self._config_dir = context.get("config_dir", Path())
        self._known_secrets = context.get("secrets", KnownSecrets())

    @property
    def config_dir(self) -> Path:
        """The directory of config.yaml."""
        return self._config_dir

    @property
    def secrets(self) -> frozenset[str]:
        """Values that must not leave the process."""
        return self._known_secrets.long_values

    @property
    def known_secrets(self) -> KnownSecrets:
        return self._known_secrets

    def mark_secrets(self, marks: Mapping[str, Mapping[str, bool]]) -> Self:
        """The same settings with the marks of the manifests, by plugin and key of its `config`.

        What the operator lists in `public_config` is public, whatever a manifest says.
        """
        configs = {name: plugin.config for name, plugin in self.plugins.items()}
        own = {
            name: {
                **marks.get(name, {}),
                **dict.fromkeys(plugin.public_config, False),
            }
            for name, plugin in self.plugins.items()
        }
        marked = self.model_copy()
        marked._known_secrets = self._known_secrets.with_marks(own, configs)
        return marked

    @property
    def state_dir(self) -> Path:
        """The directory of lock, socket and workspaces."""
        return self.state.dir

    @property
    def workspaces_dir(self) -> Path:
        """The directory of the jobs' workspaces, which several nodes may share."""
        return self.state.workspaces or self.state_dir / "workspaces"

    @property
    def webhooks_enabled(self) -> bool:
        """Whether the section exists, so the webhook listener is started."""
        return "webhooks" in self.model_fields_set

    @property
    def all_tokens(self) -> tuple[TokenSettings, ...]:
        """All tokens: first those of `api.auth.tokens`, then those of `tokens`."""
        inline = tuple(
            TokenSettings.model_construct(
                name=token.name or f"api.auth.tokens[{index}]",
                key=token.token,
                scopes=token.scopes,
            )
            for index, token in enumerate(self.api.auth.tokens)
        )
        return inline + self.tokens
