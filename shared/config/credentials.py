"""What the broker wants to see: password and certificates, read from the files that the settings name."""

from __future__ import annotations

import ssl

from shared.config.errors import RinglineError
from shared.config.settings import Mqtt


def read_password(settings: Mqtt) -> str | None:
    """The content of mqtt.password_file; RinglineError when it cannot be read."""
    if settings.password_file is None:
        return None
    try:
        return settings.password_file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RinglineError(
            f"{settings.password_file}: cannot read mqtt.password_file: {plain(error)}"
        ) from None


def tls_context(settings: Mqtt) -> ssl.SSLContext | None:
    """For a broker with TLS, None without; RinglineError for files that cannot be used."""
    if settings.tls_ca is None and settings.tls_cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert is not None:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:  # of OSError ssl.SSLError too; ValueError: a NUL in a path
        files = {key: getattr(settings, key) for key in ("tls_ca", "tls_cert", "tls_key")}
        names = ", ".join(f"mqtt.{key} = {path}" for key, path in files.items() if path)
        raise RinglineError(f"cannot use the TLS files {names}: {plain(error)}") from None
    return context


def plain(error: BaseException) -> str:
    """An error in as few words as there are."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
