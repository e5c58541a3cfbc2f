"""Text on its way: line ends and encodings, converted as it passes, however long it is."""

from __future__ import annotations

import argparse
import codecs
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flintmq.cli.output import statuses
from flintmq.cli.output.statuses import CommandFault

LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
# Every octet is a letter in it, and the same octet afterwards: line ends of ASCII and all that extends it.
AS_IT_IS = "latin-1"


@dataclass(frozen=True, slots=True)
class TextConversion:
    """From one encoding to another, with the line ends that are wanted."""

    decoded: str
    encoded: str
    line_ends: str | None

    def convert(self, parts: Iterable[bytes], what: str) -> Iterator[bytes]:
        """The parts of a text, converted; a fault if one is no text in the encoding that it should be in."""
        decoder: Any = codecs.getincrementaldecoder(self.decoded)()
        if self.line_ends is not None:
            decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        encoder = codecs.getincrementalencoder(self.encoded)()
        try:
            for part in parts:
                yield encoder.encode(self.ended(decoder.decode(part)))
            yield encoder.encode(self.ended(decoder.decode(b"", final=True)), final=True)
        except UnicodeDecodeError as error:
            raise CommandFault(f"{what}: no text in {self.decoded}: {error.reason}") from None
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise CommandFault(f"{what}: {self.encoded} has no {letter!r}") from None

    def ended(self, text: str) -> str:
        return text if self.line_ends in (None, "\n") else text.replace("\n", self.line_ends or "")


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text")
    group.add_argument("--line-ends", choices=sorted(LINE_ENDS), help="text: write lines with these ends")
    group.add_argument("--from-encoding", metavar="E", help="text: such as latin-1 (utf-8)")
    group.add_argument("--to-encoding", metavar="E", help="text: such as utf-16 (utf-8)")


def conversion_of(options: argparse.Namespace) -> TextConversion | None:
    """None where octets are to stay as they are."""
    decoded, encoded = options.from_encoding, options.to_encoding
    for name in (decoded, encoded):
        try:
            if name is not None and not codecs.lookup(name)._is_text_encoding:
                raise LookupError
        except LookupError:
            raise CommandFault(f"{name}: there is no such encoding of text", statuses.USAGE) from None
    if decoded is None and encoded is None:
        if options.line_ends is None:
            return None
        return TextConversion(AS_IT_IS, AS_IT_IS, LINE_ENDS[options.line_ends])
    line_ends = None if options.line_ends is None else LINE_ENDS[options.line_ends]
    return TextConversion(decoded or "utf-8", encoded or "utf-8", line_ends)
