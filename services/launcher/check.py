"""`ringline check`: what the services would refuse at their start because of the configuration alone."""

from __future__ import annotations

from services.launcher.broker import check_broker
from shared.bus.endpoints import Endpoints
from shared.config.errors import RinglineError
from shared.config.routes import check_routes
from shared.config.settings import Settings
from shared.model.open import check_name


def check_plant(settings: Settings) -> None:
    """RinglineError for what no machine could run. Whether files and devices are there is not looked at."""
    check_routes(settings)
    Endpoints.named(settings.paths)
    for key, model in (("target", settings.models.target), ("draft", settings.models.draft)):
        if model is not None:
            _check_model(key, model)
    if settings.broker.enabled:
        check_broker(settings)


def _check_model(key: str, model: str) -> None:
    try:
        check_name(model)
    except RinglineError as error:
        raise RinglineError(f"models.{key}: {error}") from None
