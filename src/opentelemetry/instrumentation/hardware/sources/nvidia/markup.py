"""The XML that nvidia-smi prints, taken apart: the texts in it by their paths, as far as they were said to the end."""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

_DROPPED = ("supported_clocks", "process_name", "accounted_processes")
"""Left out before the XML is read: most of it by length; a name holds any bytes that a user gave a process, and the
table of clocks was malformed in some versions.
"""

_LISTED = ("gpu", "mig_device", "process_info")
"""Elements of which there may be several."""

_DEPTH = 12
_ELEMENTS = 200_000
"""More of either is no output of this tool: a GPU has some 300 elements, 8 deep, and 7 for each of its processes."""


class Part:
    """An element that may come several times: the texts below it, by path, and such elements below it."""

    def __init__(self, id: str = "") -> None:  # noqa: A002
        self.id = id
        self.said: dict[str, str] = {}
        self.parts: list[tuple[str, Part]] = []

    def all(self, name: str) -> Iterator[Part]:
        """The elements of a name below it."""
        return (part for each, part in self.parts if each == name)

    def instead(self, path: str) -> str | None:
        """What is said of a folder instead of what is at a path in it."""
        while path := path.rpartition("/")[0]:
            if path in self.said:
                return clean(self.said[path])
        return None


class _Taken:
    """Takes XML apart. A part is only there once it was said to its end."""

    def __init__(self) -> None:
        self.log = Part()
        self._open: list[tuple[Part, list[str]]] = [(self.log, [])]
        self._text: list[str] = []
        self._elements = 0

    def take(self, text: str) -> str | None:
        """Take what there is; why not all of it."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            return expat.ErrorString(error.code)
        except ValueError as error:
            return str(error)
        return None

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > _ELEMENTS or sum(len(path) + 1 for _, path in self._open) > _DEPTH:
            raise ValueError("it is more than a document of nvidia-smi is")
        if name in _LISTED:
            self._open.append((Part(attributes.get("id", "")), []))
        else:
            self._open[-1][1].append(name)
        self._text.clear()

    def _end(self, name: str) -> None:
        part, path = self._open[-1]
        if path:
            said = "".join(self._text).strip()
            if said:
                part.said.setdefault("/".join(path), said)
            path.pop()
        else:
            self._open.pop()
            self._open[-1][0].parts.append((name, part))
        self._text.clear()


def taken(printed: bytes) -> tuple[Part, str | None]:
    """What is in the newest of the documents that were printed; and why that is not all of it.

    Raises:
        ValueError: there is no document.
    """
    text = printed.decode("utf-8", "replace")
    for name in _DROPPED:
        text = _without(text, name)
    begin = text.rfind("<nvidia_smi_log")  # behind warnings, and behind a DOCTYPE: no entity is ever defined
    if begin < 0:
        raise ValueError("there is no document of nvidia-smi")
    body, end, _ = text[begin:].partition("</nvidia_smi_log>")
    document = _Taken()
    problem = document.take(body + end)
    return document.log, problem


def _without(text: str, name: str) -> str:
    """The text without an element, wherever it stands."""
    first, *others = text.split(f"<{name}>")
    kept = [first]
    for other in others:
        inside, closed, after = other.partition(f"</{name}>")
        kept.append(after if closed else inside)
    return "".join(kept)


def clean(text: str) -> str:
    """What is said, without the brackets that some versions put around what is no value."""
    text = " ".join(text.split())
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text
