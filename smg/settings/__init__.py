"""Every knob of the router. `RouterSettings()` is the default; `load` reads flags, environment and a YAML file.

Sections nest and are frozen: `settings.admission.queue_size`. Nothing else in the product reads the environment.
"""

from __future__ import annotations

from smg.settings.faults import Fault, SettingsError
from smg.settings.fields import Section, TenantKey
from smg.settings.history import HistorySettings
from smg.settings.load import Loaded, environment, load
from smg.settings.mcp import McpSettings
from smg.settings.options import Option, options_of
from smg.settings.sections import (
    AdmissionSettings,
    CallerSettings,
    EngineSettings,
    ListenerSettings,
    LocalListenerSettings,
    ModelSettings,
    RetrySettings,
    RouterSettings,
    RoutingSettings,
    ServeSettings,
    TelemetrySettings,
    WorkerSettings,
)

__all__ = [
    "RouterSettings",
    "ServeSettings",
    "ListenerSettings",
    "LocalListenerSettings",
    "ModelSettings",
    "WorkerSettings",
    "RoutingSettings",
    "AdmissionSettings",
    "RetrySettings",
    "CallerSettings",
    "TelemetrySettings",
    "HistorySettings",
    "McpSettings",
    "EngineSettings",
    "Section",
    "TenantKey",
    "Option",
    "options_of",
    "Fault",
    "SettingsError",
    "Loaded",
    "environment",
    "load",
]
