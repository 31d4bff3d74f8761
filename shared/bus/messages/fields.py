"""What every message is made of, and the limits of what stands in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

from shared.config.quote import one_line
from shared.config.values import MAX_STOPS, StopString

Token = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
SeqId = Annotated[int, Field(ge=1, lt=2**53)]
RequestId = Annotated[str, Field(min_length=1, max_length=128)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Hash = Annotated[str, Field(max_length=128)]
Label = Annotated[str, Field(max_length=128)]
StreamName = Annotated[str, Field(max_length=128)]
Duration = Annotated[float, Field(ge=0, lt=2**53)]  # in the unit that the field is named after
# For people: longer text is cut where the message is made, and again where it is read.
Text = Annotated[str, AfterValidator(lambda text: one_line(text, 500))]
# FailFast: a list of wrong items is one error, not one for each of them.
Tokens_ = Annotated[list[Token], Field(max_length=1 << 18), FailFast()]
StopTokens = Annotated[list[Token], Field(max_length=16), FailFast()]
StopStrings = Annotated[list[StopString], Field(max_length=MAX_STOPS), FailFast()]
Blocks = Annotated[list[Count], Field(max_length=1 << 16), FailFast()]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
