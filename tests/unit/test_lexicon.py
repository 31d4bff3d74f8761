"""The lexicon: texts in, passages out, a file that is right or refused in one line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from typer.testing import CliRunner

from services.draft.lexicon import Lexicon
from services.draft.plant import open_plant
from services.launcher.cli import app
from shared.config.errors import RinglineError
from shared.config.settings import Draft, Settings
from shared.lexicon import Passage, Passages, read_lexicon, texts, write_lexicon
from shared.lexicon.build import LONGEST, build
from shared.lexicon.texts import passages

VOCABULARY = "a vocabulary"
N_VOCAB = 1000


def words(text: str) -> list[int]:
    return [sum(word.encode()) % N_VOCAB for word in text.split()]


def lexicon_of(*passages: Passage) -> Passages:
    with tempfile.TemporaryDirectory() as directory:
        write_lexicon(Path(directory) / "x", passages, "a model", VOCABULARY)
        return read_lexicon(Path(directory) / "x", VOCABULARY, N_VOCAB)


def test_passages_are_looked_up_apart_from_each_other() -> None:
    """The last token of one does not stand in front of the next."""
    index = Lexicon(lexicon_of(*some())).index
    assert [index.document(i) for i in range(index.documents)] == [[1, 2, 3], [4, 5]]
    assert index.sorted()
    assert [index.token(place) for place, _, _ in index.find(np.array([3], np.int32))] == []
    assert [index.token(place) for place, _, _ in index.find(np.array([4], np.int32))] == [5]


def some() -> list[Passage]:
    return [Passage(np.array(tokens, np.int32), count) for tokens, count in (([1, 2, 3], 5), ([4, 5], 1))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk"])
def test_texts_are_read_in_the_encodings_that_plants_use(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "manual.txt").write_text(
        "主轴温度过高\n检查润滑\n\n\nSecond paragraph\r\n", encoding=encoding
    )
    (tmp_path / "codes.csv").write_text(
        "代码;含义\n17;伺服驱动器过载\n18;编码器断线，检查插头\n", encoding=encoding
    )
    (tmp_path / "codes.json").write_text(
        json.dumps([{"id": 16, "zh": {"cause": "电缆松动了", "x": ["", "ok", 3]}}], ensure_ascii=False),
        encoding=encoding,
    )
    assert list(passages(tmp_path / "manual.txt")) == ["主轴温度过高\n检查润滑", "Second paragraph"]
    assert list(passages(tmp_path / "codes.csv")) == ["伺服驱动器过载", "编码器断线，检查插头"]
    assert list(passages(tmp_path / "codes.json")) == ["电缆松动了"]


def test_answers_as_the_gateway_publishes_them_are_read_line_by_line(tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "text": f"answer number {i}"}) for i in range(3)]
    (tmp_path / "answers.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]))
    assert list(passages(tmp_path / "answers.jsonl")) == [f"answer number {i}" for i in range(3)]


def test_numbers_and_line_separators_inside_a_string_harm_no_json(tmp_path: Path) -> None:
    line = json.dumps({"text": "two\u2028lines\u0085here", "n": 1}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_text(f"{line}\r\n{line.replace('1', '9' * 5000)}\n", encoding="utf-8")
    assert list(passages(tmp_path / "a.jsonl")) == ["two\u2028lines\u0085here"] * 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.pdf", b"%PDF", "files of this kind are not read"),
        ("x.json", b"{", "this is no json"),
        ("x.json", b"[" * 100_000, "this is no json"),
        ("x.jsonl", b'{"a": 1}\n{', "this is no jsonl"),
        ("x.csv", b'a,"b\n', "this is no csv"),
        ("x.txt", b"\xff\xff\xff", "neither UTF-8 nor GBK"),
        ("x.txt", b"a\0b", "neither UTF-8 nor GBK"),
        ("missing.txt", None, "cannot be read"),
    ],
)
def test_a_bad_input_is_one_line_that_names_it(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RinglineError) as error:
        list(passages(path))
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_huge_input_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.txt").open("wb") as file:
        file.truncate(texts.MAX_BYTES + 1)
    (tmp_path / "endless.txt").symlink_to("/dev/zero")
    for name in ("x.txt", "endless.txt"):
        with pytest.raises(RinglineError, match="more than 64 MB"):
            list(passages(tmp_path / name))


def test_passages_are_kept_once_and_the_frequent_ones_first() -> None:
    built = build(["a b", "c d e", "a b", "f", "g h i j"], words, 7)
    assert [(p.tokens.tolist(), p.count) for p in built.passages] == [(words("a b"), 2), (words("c d e"), 1)]
    assert built.left_out == 1
    assert built.tokens == 5


@given(st.lists(st.text("ab ", max_size=20)), st.integers(0, 30))
def test_a_lexicon_keeps_its_bound(found: list[str], tokens: int) -> None:
    built = build(found, words, tokens)
    assert built.tokens <= tokens
    assert all(2 <= len(p.tokens) <= LONGEST for p in built.passages)


def test_a_long_passage_is_cut_into_several() -> None:
    built = build(["word " * 2500], words, 10_000)
    assert [len(p.tokens) for p in built.passages] == [1024, 1024, 452]


def test_of_a_passage_larger_than_the_room_the_beginning_is_kept() -> None:
    """A log without an empty line is one passage."""
    built = build(["word " * 2500, "a b"], words, 1100)
    assert [len(p.tokens) for p in built.passages] == [1024, 2]
    assert built.left_out == 1


def test_text_that_cannot_fit_is_not_encoded() -> None:
    seen: list[int] = []

    def encode(text: str) -> list[int]:
        seen.append(len(text))
        return words(text)

    build(["word " * 1_000_000], encode, 1000)
    assert max(seen) <= 32_000


def test_a_file_holds_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plant.lexicon"
    write_lexicon(path, some(), "a model", VOCABULARY)
    write_lexicon(path, some(), "a model", VOCABULARY)
    read = read_lexicon(path, VOCABULARY, N_VOCAB)
    assert (read.tokens.tolist(), read.lengths.tolist(), read.counts.tolist()) == (
        [1, 2, 3, 4, 5],
        [3, 2],
        [5, 1],
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@given(st.integers(0, 1 << 30), st.integers(1, 255), st.booleans())
def test_a_damaged_file_is_refused(at: int, change: int, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plant.lexicon"
        write_lexicon(path, some(), "a model", VOCABULARY)
        raw = bytearray(path.read_bytes())
        at %= len(raw)
        raw[at] ^= change
        path.write_bytes(raw[:at] if cut else raw)
        with pytest.raises(RinglineError) as error:
            read_lexicon(path, VOCABULARY, N_VOCAB)
        assert str(error.value).startswith(f"{path}: ")
        assert "ringline lexicon build" in str(error.value)


@pytest.mark.parametrize(
    "passage",
    [Passage(np.array([1, N_VOCAB], np.int32), 1), Passage(np.zeros(0, np.int32), 1)],
)
def test_a_forged_file_is_refused(tmp_path: Path, passage: Passage) -> None:
    write_lexicon(tmp_path / "x", [*some(), passage], "a model", VOCABULARY)
    with pytest.raises(RinglineError, match="contradict"):
        read_lexicon(tmp_path / "x", VOCABULARY, N_VOCAB)


def test_another_vocabulary_is_refused_with_the_models_name(tmp_path: Path) -> None:
    write_lexicon(tmp_path / "x", some(), "qwen2.5-coder-1.5b", VOCABULARY)
    with pytest.raises(RinglineError, match=r"built for qwen2\.5-coder-1\.5b, whose vocabulary"):
        read_lexicon(tmp_path / "x", "another", N_VOCAB)


def test_a_file_of_the_wrong_size_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(RinglineError, match="too many for a lexicon"):
        read_lexicon(tmp_path / "x", VOCABULARY, N_VOCAB)


def test_an_empty_lexicon_says_nothing() -> None:
    lexicon = Lexicon(lexicon_of())
    assert lexicon.index.find(np.array([1, 2], np.int32)) == []


def test_the_command_refuses_bad_input_with_one_line(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    result = CliRunner().invoke(app, ["lexicon", "build", "--out", out, "--model", "nonsense", "x.txt"])
    structlog.reset_defaults()
    assert result.exit_code == 2
    assert result.stderr.startswith("ringline: ")
    assert result.stderr.count("\n") == 1


def test_the_command_does_not_write_over_its_input(tmp_path: Path) -> None:
    manual = tmp_path / "manual.txt"
    manual.write_text("check the pump")
    arguments = ["lexicon", "build", "--out", f"{tmp_path}/./manual.txt", "--model", "nonsense", str(manual)]
    result = CliRunner().invoke(app, arguments)
    structlog.reset_defaults()
    assert result.exit_code == 2
    assert "--out is one of the inputs" in result.stderr
    assert manual.read_text() == "check the pump"


def test_without_retrieval_there_is_no_plant_to_open() -> None:
    assert open_plant(Settings(draft=Draft(sources=("cpu",)))) == (None, None)


def test_without_history_and_lexicon_the_model_is_not_asked(tmp_path: Path) -> None:
    plant, file = open_plant(Settings(draft=Draft(history_tokens=0)))
    assert plant is not None
    assert (plant.history, plant.lexicon, file) == (None, None, None)


def test_a_model_that_is_missing_costs_history_and_lexicon_only(
    tmp_path: Path,
) -> None:
    settings = Settings.model_validate({"paths": {"data": str(tmp_path)}})
    with capture_logs() as said:
        plant, file = open_plant(settings)
    assert plant is not None
    assert (plant.history, file) == (None, None)
    assert [line["event"].split(":")[0] for line in said] == ["drafts know no earlier answers and no lexicon"]
