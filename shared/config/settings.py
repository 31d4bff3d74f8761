"""Every setting of every service: one TOML file, validated once, frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from shared.config.values import (
    MAX_STOPS,
    Acceptance,
    Affinity,
    ClientId,
    FilePath,
    Host,
    Megabytes,
    MinP,
    ModelName,
    RepetitionPenalty,
    Seed,
    StopString,
    Temperature,
    Threads,
    TopK,
    TopP,
    Word,
)

Language = Literal["en", "zh"]
KvFormat = Literal["f16", "int8"]
MAX_PROFILES = 16  # each has its prefix pinned in the pool, and a record in kv.ctl


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Paths(Section):
    runtime: FilePath = Path("/run/ringline")  # sockets, 0700
    memory: FilePath = Path("/dev/shm/ringline")  # kv.pool and kv.ctl
    data: FilePath = Path("/var/lib/ringline")  # journal, models, weight caches

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def cache(self) -> Path:
        return self.data / "cache"


class Models(Section):
    target: ModelName = "qwen2.5-coder-1.5b"  # a name of the catalogue, or the path of a GGUF
    draft: ModelName | None = "qwen2.5-coder-0.5b"  # None, in TOML "": no draft model, no second plane

    @field_validator("draft", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value


class Context(Section):
    pool_mb: Megabytes = 192
    kv: KvFormat = "f16"  # keys and values in the pool: int8 has a scale for each vector, half the memory
    max_sequences: Annotated[int, Field(ge=1, le=64)] = 8
    max_streams: Annotated[int, Field(ge=0, le=64)] = 8
    max_waiting: Annotated[int, Field(ge=0, le=4096)] = 256


class Verifier(Section):
    threads: Threads = 2
    isa: Word = ""  # "" picks the best the CPU has
    affinity: Affinity = "auto"
    node_budget: Annotated[int, Field(ge=0, le=64)] = 24  # draft nodes of one sequence in a pass at most
    pass_nodes: Annotated[int, Field(ge=1, le=512)] = 64  # tree nodes of all sequences in a pass
    prefill_chunk: Annotated[int, Field(ge=1, le=512)] = 64
    max_wait_ms: Annotated[float, Field(ge=0, le=1000)] = 5.0  # for drafts that nobody has announced


class Draft(Section):
    sources: Annotated[tuple[Literal["retrieval", "cpu"], ...], Field(max_length=2)] = ("retrieval", "cpu")
    threads: Threads = 1
    isa: Word = ""
    affinity: Affinity = "auto"
    depth: Annotated[int, Field(ge=1, le=32)] = 5  # tokens the CPU model drafts ahead
    history_tokens: Annotated[int, Field(ge=0, le=1 << 20)] = 131_072  # of answers, kept in paths.data
    lexicon: FilePath | None = None  # of `ringline lexicon build`; None, in TOML "": none

    @field_validator("lexicon", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value


class Mqtt(Section):
    host: Host = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 1883
    version: Literal["5", "3.1.1"] = "5"
    client_id: ClientId = "ringline"
    username: Word | None = None
    password_file: FilePath | None = None  # never the password itself
    tls_ca: FilePath | None = None
    tls_cert: FilePath | None = None
    tls_key: FilePath | None = None
    keepalive_s: Annotated[int, Field(ge=5, le=3600)] = 30
    session_expiry_s: Annotated[int, Field(ge=60, le=2**31)] = 7 * 24 * 3600


class Gateway(Section):
    max_payload_bytes: Annotated[int, Field(ge=64, le=1 << 24)] = 64 * 1024
    journal_max_alarms: Annotated[int, Field(ge=100, le=100_000_000)] = 100_000
    dead_letter_topic: str = "ringline/dead-letter"
    max_in_flight: Annotated[int, Field(ge=1, le=64)] = 4  # alarms submitted and not yet answered
    journal_max_lines: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000  # then the oldest unread go


class Profile(Section):
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    language: Language
    system: Annotated[str, Field(min_length=1, max_length=32_768)]
    window: Annotated[int, Field(ge=64, le=32_768)] = 1024  # W, tokens visible behind the sink
    max_tokens: Annotated[int, Field(ge=1, le=8192)] = 160
    deadline_s: Annotated[float, Field(ge=0, le=86400)] = 0.0  # from submission to the answer's end; 0: none
    temperature: Temperature = 0.0  # 0: always the likeliest token
    top_k: TopK = 0  # only the k likeliest tokens; 0: all
    top_p: TopP = 1.0  # only the likeliest tokens that together have this probability
    min_p: MinP = 0.0  # only tokens at least so likely, as a part of the likeliest's probability
    repetition_penalty: RepetitionPenalty = 1.0  # above 1: what is in the window is said again less readily
    seed: Seed = 0  # an alarm is always answered the same; with another seed differently
    acceptance: Acceptance = "match"  # of drafts; "ratio" accepts more and is not repeatable
    stop: Annotated[tuple[StopString, ...], Field(max_length=MAX_STOPS)] = ()  # an answer ends before these


class Route(Section):
    topic: str  # MQTT filter, e.g. "plant/+/alarm"
    profile: str
    answer: str = ""  # answers go to `answer` and `answer`/stream; {1}, {2} … are the filter's wildcards
    stream: str = ""  # an asset's: without `answer` lines are appended to it, else alarms are asked on it


def _check_count(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) > MAX_PROFILES:
        raise ValueError(f"{len(value)} profiles are too many, {MAX_PROFILES} are allowed; remove some")
    return value


class Broker(Section):
    """The embedded broker, for demonstrations: loopback, no authentication."""

    enabled: bool = False
    host: Host = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 1883


class Launcher(Section):
    restarts: Annotated[int, Field(ge=0, le=10_000)] = 5  # of one service within `restart_window_s`
    restart_window_s: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 60.0
    hang_s: Annotated[float, Field(ge=10, le=3600)] = 30.0  # a service that is silent for so long is killed


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class Settings(Section):
    paths: Paths = Paths()
    models: Models = Models()
    context: Context = Context()
    verifier: Verifier = Verifier()
    draft: Draft = Draft()
    mqtt: Mqtt = Mqtt()
    gateway: Gateway = Gateway()
    broker: Broker = Broker()
    launcher: Launcher = Launcher()
    log: Log = Log()
    profiles: Annotated[tuple[Profile, ...], BeforeValidator(_check_count)] = ()
    routes: tuple[Route, ...] = ()
