"""`ringline check`: what the services would refuse at their start because of the configuration alone."""

from __future__ import annotations

from services.launcher.broker import check_broker
from shared.bus.endpoints import Endpoints
from shared.config.routes import check_routes
from shared.config.settings import Settings
from shared.model.open import check_name


def check_plant(settings: Settings) -> None:
    """RinglineError for what no machine could run. Whether files and devices are there is not looked at."""
    check_routes(settings)
    Endpoints.named(settings.paths)
    for model in (settings.models.target, settings.models.draft):
        if model is not None:
            check_name(model)
    if settings.broker.enabled:
        check_broker(settings)
