"""One self-contained HTML page: style and pictures inside, nothing loaded from afar.

    page = Page("CartPole-v1")
    page.heading("How it scales")
    page.figure(svg, "steps per second")
    path.write_text(page.render())

Everything given as text is escaped; pictures are the SVG that `charts` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

# Inches of a picture: of a page's whole width, and of half of it or of a telephone's.
# Letters are as large in both, so neither is shrunk beyond reading.
WIDE_INCHES, NARROW_INCHES = 8.4, 4.2
# Draws SVG; its keyword argument `width` is in inches.
Draw = Callable[..., str]

STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


class Page:
    """A page that grows from top to bottom."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if subtitle:
            self.paragraph(subtitle, soft=True)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def paragraph(self, text: str, soft: bool = False) -> None:
        """Say something; `soft` in smaller, paler type."""
        kind = ' class="soft"' if soft else ""
        self._parts.append(f"<p{kind}>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Show a command or a program."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def callout(self, text: str, code: str = "") -> None:
        """What the reader should take away."""
        shown = f"<pre>{escape(code)}</pre>" if code else ""
        self._parts.append(f'<div class="callout"><p>{escape(text)}</p>{shown}</div>')

    def figure(self, svg: str, caption: str = "") -> None:
        """A picture, and a line under it."""
        self._figure(f'<div class="wide">{svg}</div>', caption)

    def picture(self, draw: Draw, caption: str = "") -> None:
        """A picture that is drawn twice, for wide and for narrow screens."""
        self._figure(
            f'<div class="broad">{draw(width=WIDE_INCHES)}</div>'
            f'<div class="narrow">{draw(width=NARROW_INCHES)}</div>',
            caption,
        )

    def _figure(self, content: str, caption: str) -> None:
        under = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{content}{under}</figure>")

    def grid(self, pictures: Iterable[tuple[str, Draw, str]]) -> None:
        """Small pictures side by side, as many as fit: title, picture, caption."""
        figures = "".join(
            f"<figure><h3>{escape(title)}</h3>{draw(width=NARROW_INCHES)}"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for title, draw, caption in pictures
        )
        self._parts.append(f'<div class="grid">{figures}</div>')

    def shares(self, shares: Sequence[tuple[str, float, str, str]]) -> None:
        """One bar of several parts: name, share of 1, colour and meaning of each."""
        bar = "".join(
            f'<div style="flex: {part:.4f}; background: {color}"></div>'
            for _, part, color, _ in shares
        )
        rows = "".join(
            f'<tr><td class="text"><span class="swatch" style="background: '
            f'{color}"></span>{escape(name)}</td>'
            f'<td>{100 * part:.1f}%</td><td class="text means">'
            f"{escape(meaning)}</td></tr>"
            for name, part, color, meaning in shares
        )
        self._parts.append(
            f'<div class="shares" aria-hidden="true">{bar}</div>'
            f"<table><tbody>{rows}</tbody></table>"
        )

    def facts(self, facts: Mapping[str, str]) -> None:
        """Names and what they stand for."""
        pairs = "".join(
            f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
            for name, text in facts.items()
        )
        self._parts.append(f"<dl>{pairs}</dl>")

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        texts: Sequence[int] = (),
        kinds: Sequence[str] = (),
    ) -> None:
        """Figures in columns.

        Args:
            headings: one per column.
            rows: cells, as many as headings; fewer, and the last one spans the rest.
            texts: which columns hold words and stand left.
            kinds: of each row: any of "first" (a line above), "strong" and "bad".
        """
        head = "".join(
            f"<th{_left(column, texts)}>{escape(text)}</th>"
            for column, text in enumerate(headings)
        )
        body = "".join(
            _row(cells, len(headings), texts, kinds[number] if kinds else "")
            for number, cells in enumerate(rows)
        )
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def render(self) -> str:
        """The whole file."""
        content = "\n".join(self._parts)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self._title)}</title>\n<style>\n{STYLE}</style>\n"
            f"</head>\n<body>\n{content}\n</body>\n</html>\n"
        )


def _left(column: int, texts: Sequence[int]) -> str:
    return ' class="text"' if column in texts else ""


def _row(cells: Sequence[str], columns: int, texts: Sequence[int], kind: str) -> str:
    shown = [
        f"<td{_left(column, texts)}>{escape(cell)}</td>"
        for column, cell in enumerate(cells)
    ]
    if (span := columns - len(cells) + 1) > 1:
        last = escape(cells[-1])
        shown[-1] = f'<td class="text long" colspan="{span}">{last}</td>'
    mark = f' class="{kind}"' if kind else ""
    return f"<tr{mark}>{''.join(shown)}</tr>"
