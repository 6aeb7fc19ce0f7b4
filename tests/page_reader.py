"""Reads a page as strictly as no browser does."""

from html.parser import HTMLParser

VOID = {"meta", "br", "wbr", "input", "link", "img", "hr"}


class Reader(HTMLParser):
    """What a page consists of; fails where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} ends at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, tag: str) -> str:
        return "".join(text for inside, text in self.texts if inside == tag)

    def sections(self) -> set[str | None]:
        return {attributes["id"] for tag, attributes in self.tags if tag == "section"}
