"""Prose out of docstrings: paragraphs in plain words, without code blocks, tables, formulas, headings and markup.

Names of functions and arguments stay where a sentence speaks of them. A sentence with more code than that is left out,
and parts its paragraph: what stands on either side of it is a paragraph of its own, so that no text has holes.
"""

import inspect
import re
from collections.abc import Iterator


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BULLET = re.compile(r"^(?:[*+•-]|\(?(?:\d{1,2}|[a-z])[.)]|#\.)\s+")
_UNDERLINE = re.compile(r"^([=\-~^*#+`\"'.])\1{2,}$")
# The block below such a line is code, or names without sentences.
_DROPPED = re.compile(r"^(shapes?|examples?|usage|see also|references?)\s*(\(.*\))?\s*:{1,2}$", re.IGNORECASE)
# The block below such a line is a list of names that are described by sentences.
_NAMES = re.compile(
    r"^(args?|arguments?|keyword arg(ument)?s?|kwargs|param(eter)?s?|other parameters|attributes|inputs?|outputs?"
    r"|variables|members|fields|raises)\s*(\(.*\))?\s*:{1,2}$",
    re.IGNORECASE,
)
_CODE_OR_DIRECTIVE = re.compile(r">>>|\.\.")
_DIRECTIVE = re.compile(r"^\.\. +([\w-]+)::\s*(.*)$")
_SPOKEN_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "hint", "seealso"}
_LEAD = re.compile(
    r"^(notes?|n\.?b\.?|warnings?|returns?|raises|yields|tip|important|caution|todo|fixme|implementation details?"
    r"|caveats?|description|summary|see also)\s*:+\s*",
    re.IGNORECASE,
)
_NAME = r"[\w.\[\]]++"
_KIND = r"\s*+\((?:[^()]++|\([^()]*+\))*+\)"
# "name (type): ...", "name: ...", "name -- ...", ":param x: ...", "f(x) -> y -- ...": what follows describes the name.
_FIELD = re.compile(
    rf"^(?:[`*]{{0,4}}{_NAME}`{{0,2}}(?:(?:,\s|\s?/\s?)[`*]{{0,4}}{_NAME}`{{0,2}}){{0,3}}{_KIND}\s*(?::|--?\s)"
    rf"|[`*]{{0,4}}{_NAME}[`*]{{0,4}}(?:\s*:|\s*--|\s+-)(?=\s)"
    r"|:(?:param|arg|return|raise|yield|keyword|[ic]?var)\w*[^:`]*:"
    rf"|[\w.]++{_KIND}(?:\s*->\s*\S+)?\s*(?:--|:))\s*"
)
_SIGNATURE = re.compile(r"^(?:[\w.]+\s*=\s*)?[\w.]+\(.*\)(?:\s*->.*)?:{0,2}$|^[\w*., ]+ : [\w\[\], .|`:{}'~]+$")
_DEFAULT = re.compile(r"\(\s*default[^()]*\)|[,;(]*\s?\bdefaults?\s*(?::|=)\s*[^.]*\.?\s*$", re.IGNORECASE)
_CITATION = re.compile(r"\s*\[[\w+-]+\]_(?=\W|$)|\s\[\d{1,2}\]")
# A name for a longer explanation elsewhere, as torch has them.
_REFERENCE = re.compile(r"\[((?:note|see)\b[^\[\]]*)\]", re.IGNORECASE)
_STARRED = re.compile(r"(?<![\w*])\*{1,2}(?=(?:args|kwargs|\w+_kwargs|\w+_args)\b)")
_TARGET = re.compile(r"(?::[\w:+.-]+:)?`([^`<]+?)\s*<[^`>]+>`_{0,2}")
_MATHS = re.compile(r":math:\s?`([^`]*)`")
_ROLE = re.compile(r":[\w:+.-]+:\s?`~[^`]*?([^`.]+)`|:[\w:+.-]+:\s?`!?([^`]*)`")
_LITERAL = re.compile(r"``([^`]+)``|`([^`'\s]+)'(?!\w)|`([^`]+)`_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([A-Za-z][^*]*?)\1(?![\w*])")
# A name, perhaps called with names; an option; a keyword with its value; plain words.
_SPEAKABLE = re.compile(r"\*{0,2}[\w.]+(?:\((?:\w+(?:, \w+)*)?\))?|-{1,2}[\w-]+|\w+=[\w.]+|[\w ,.'/-]+")
_CODE = "\0"
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z0])")
_ABBREVIATED = re.compile(r"\b(?:e\.?g|i\.?e|cf|vs|etc|resp|Dr|Mr|al|Fig|Eq|Sec|No)\.$")
_UNSPOKEN = re.compile(
    r"[{}|<>\\`$@^~\[\]\0*%]|(?<!\w)=|=(?!\w)|::|:\w+:|(?<!\w):\w[\w ]*:|\.\.|(?<!\w)#|https?:|www\.|\bXXX|\"\"|''"
    r"|\w\(\S*\)\w|--\S|->|\d{4}-\d\d|(?<![\w+])[+/&](?!\w)|\w\+\w|\([^()]*$|^[^()]*\)"
)
_WORD = re.compile(r"[A-Za-z]+(?:['\u2019/-][A-Za-z]+)*")
_FUNCTION_WORDS = _set(
    """a an the this that these those it its they them their there here we you your our i he she his her which who whose
    what when where why how if whether while until unless because since although though than then as so but and or nor
    not no any all each every some both either only also just such same other another more most many few in on at by for
    from to into of off with without within between before after over under through via per about above below during
    against upon across is are was were be been being has have had do does did can could will would shall should may
    might must cannot don't doesn't isn't it's"""
)
# No sentence ends with them, if nothing was cut off.
_OPEN = _set(
    """a an the of for to in and or with by from that which is are was be been if as on at will would can could must
    should may has have not than when while because into its their this these between before after"""
)
MIN_WORDS = 7


def paragraphs(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring that are prose, in one line each."""
    for block in _Blocks().read(inspect.cleandoc(docstring)):
        yield from _prose(block)


class _Blocks:
    """Runs of lines that belong together, without literal blocks, doctests, headings and tables of names."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._first = self._last = 0
        # A bullet's or a name's text goes on below it, further to the right.
        self._hanging = self._field = False
        # What is further to the right than this is left out, or is a list of names.
        self._skipped: int | None = None
        self._names: int | None = None
        self._fenced = self._doctest = False

    def read(self, text: str) -> Iterator[str]:
        for line in text.expandtabs().splitlines():
            words = line.strip()
            fence = words.startswith("```")
            self._fenced ^= fence
            if fence or not words:
                self._doctest = False
                yield from self._end()
            elif not self._fenced and not self._doctest:
                yield from self._line(words, len(line) - len(line.lstrip()))
        yield from self._end()

    def _end(self) -> Iterator[str]:
        if self._lines:
            yield " ".join(self._lines)
            if self._lines[-1].endswith("::"):
                self._skipped = self._first
            self._lines = []

    def _line(self, words: str, indent: int) -> Iterator[str]:
        if self._skipped is not None and indent > self._skipped:
            return
        self._skipped = None
        if self._names is not None and indent <= self._names:
            self._names = None
        if _UNDERLINE.match(words):
            # The line above was a heading.
            self._lines = []
            return
        bullet = _BULLET.match(words)
        field = ":" in words[:60] or " -" in words[:40]
        field = field and _FIELD.match(words) is not None
        special = words.startswith((">>>", "..")) or words.endswith((":", ")")) or " : " in words
        special = special and self._is_special(words)
        described = words[0] == ":" and _ROLE.match(words) is None
        starts = bullet is not None or described or (field and (self._field or self._names is not None))
        if self._lines and (special or starts or _LEAD.match(words) or self._turns(indent)):
            literal = self._lines[-1].endswith("::") and indent > self._first
            yield from self._end()
            if literal:
                return
            self._skipped = None
        if special:
            self._begin_special(words, indent)
            return
        if not self._lines:
            self._first = indent
            self._field = field
            self._hanging = bullet is not None or field or self._names is not None or _LEAD.match(words) is not None
        self._lines.append(words[bullet.end() :] if bullet else words)
        self._last = indent

    def _turns(self, indent: int) -> bool:
        """Whether a line's indentation says that it begins something new."""
        if indent < self._first:
            return True
        if self._hanging:
            return indent == self._first and (self._last > indent or self._names is not None)
        # A term and its description, or a line that was complete.
        complete = self._lines[-1][-1] in ".:!?" or (len(self._lines) == 1 and self._lines[0].count(" ") < 5)
        return indent > self._last and complete

    def _is_special(self, words: str) -> bool:
        return any(pattern.match(words) is not None for pattern in (_CODE_OR_DIRECTIVE, _DROPPED, _NAMES, _SIGNATURE))

    def _begin_special(self, words: str, indent: int) -> None:
        directive = _DIRECTIVE.match(words)
        if words.startswith(">>>"):
            self._doctest = True
        elif directive is not None and directive[1].lower() in _SPOKEN_DIRECTIVES:
            self._lines = [directive[2]] if directive[2] else []
            self._first, self._last, self._hanging, self._field = indent, indent, True, False
        elif _NAMES.match(words):
            self._names = indent
        elif _DROPPED.match(words) or words.startswith(".."):
            self._skipped = indent


def _prose(text: str) -> Iterator[str]:
    """The runs of prose in a text."""
    for opening in (_LEAD, _FIELD):
        found = opening.match(text)
        text = text[found.end() :].lstrip() if found else text
    if text.count(" ") < MIN_WORDS - 1:
        return
    if text[:1].islower() and _WORD.fullmatch(text.split()[0]):
        text = text[0].upper() + text[1:]
    run: list[str] = []
    for sentence in (*_sentences(_plain(text)), ""):
        if sentence and _is_spoken(sentence):
            run.append(sentence)
            continue
        whole = " ".join(run)
        run = []
        if whole and _is_prose(whole):
            yield whole if whole[-1] in ".!?\"')" else f"{whole}."


def _plain(text: str) -> str:
    """The text without markup; what cannot be said aloud becomes a mark."""
    text = _DEFAULT.sub("", text)
    if "[" in text:
        text = _REFERENCE.sub(r"\1", _CITATION.sub("", text))
    if "`" in text:
        text = _unquoted(text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\2", _STARRED.sub("", text))
    return re.sub(r"\s+", " ", text).strip()


def _unquoted(text: str) -> str:
    """Roles, literals and links as their texts."""
    text = _TARGET.sub(r"\1", text)
    text = _MATHS.sub(lambda match: match[1] if re.fullmatch(r"[A-Za-z]|\d+", match[1].strip()) else _CODE, text)
    text = _ROLE.sub(lambda match: _said(match[1] or match[2]), text)
    return _LITERAL.sub(lambda match: _said(match[1] or match[2] or match[3]), text)


def _said(code: str) -> str:
    code = code.strip()
    return code if _SPEAKABLE.fullmatch(code) else _CODE


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for gap in _SENTENCE.finditer(text):
        if not _ABBREVIATED.search(text[start : gap.start()]):
            yield text[start : gap.end()].rstrip()
            start = gap.end()
    if start < len(text):
        yield text[start:]


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?()\"'") for word in text.split()]


def _is_spoken(sentence: str) -> bool:
    if sentence[-1] in ":,;-(/" or not sentence.isprintable() or _UNSPOKEN.search(sentence):
        return False
    words = _words(sentence)
    spoken = sum(_WORD.fullmatch(word) is not None for word in words)
    cut_off = sentence[-1] not in ".!?\"')" and words[-1].lower() in _OPEN
    return spoken >= 0.7 * len(words) and not cut_off


def _is_prose(text: str) -> bool:
    words = _words(text)
    spoken = sum(_WORD.fullmatch(word) is not None for word in words)
    common = sum(word.lower() in _FUNCTION_WORDS for word in words)
    return (
        len(words) >= MIN_WORDS
        and spoken >= 0.75 * len(words)
        and common >= 0.2 * len(words)
        and (text[0].isalnum() or text[0] in "\"'(")
    )
