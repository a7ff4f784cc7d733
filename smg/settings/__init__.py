"""Every knob of the router. `RouterSettings()` is the default; `load` reads flags, environment and a YAML file.

Sections nest and are frozen: `settings.admission.queue_size`. Nothing else in the product reads the environment.
"""

from __future__ import annotations

from smg.settings.callers import CallerSettings
from smg.settings.decisions import DecisionSettings
from smg.settings.encoding import EncodingSettings
from smg.settings.faults import Fault, SettingsError
from smg.settings.fields import Section
from smg.settings.fleet import BreakerSettings, DiscoverySettings, FleetSettings
from smg.settings.history import HistorySettings
from smg.settings.keys import ControlPlaneKey, TenantKey
from smg.settings.load import Loaded, environment, load
from smg.settings.mcp import McpSettings
from smg.settings.media import MediaSettings
from smg.settings.mesh import MeshSettings
from smg.settings.options import Option, options_of
from smg.settings.overload import OverloadSettings
from smg.settings.sections import (
    AdmissionSettings,
    EngineSettings,
    ListenerSettings,
    LocalListenerSettings,
    ModelSettings,
    RetrySettings,
    RouterSettings,
    RoutingSettings,
    ServeSettings,
    WorkerSettings,
)
from smg.settings.telemetry import TelemetrySettings
from smg.settings.tls import TlsSettings

__all__ = [
    "RouterSettings",
    "ServeSettings",
    "ListenerSettings",
    "LocalListenerSettings",
    "ModelSettings",
    "WorkerSettings",
    "DiscoverySettings",
    "FleetSettings",
    "BreakerSettings",
    "RoutingSettings",
    "AdmissionSettings",
    "OverloadSettings",
    "RetrySettings",
    "CallerSettings",
    "TlsSettings",
    "TelemetrySettings",
    "DecisionSettings",
    "EncodingSettings",
    "HistorySettings",
    "McpSettings",
    "MeshSettings",
    "MediaSettings",
    "EngineSettings",
    "Section",
    "TenantKey",
    "ControlPlaneKey",
    "Option",
    "options_of",
    "Fault",
    "SettingsError",
    "Loaded",
    "environment",
    "load",
]
