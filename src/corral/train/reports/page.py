"""One self-contained HTML page: style and pictures inside, nothing loaded from afar.

    page = Page("CartPole-v1")
    page.heading("How it scales")
    page.figure(svg, "steps per second")
    path.write_text(page.render())

Everything given as text is escaped; pictures are the SVG that `charts` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDE_INCHES, NARROW_INCHES = 8.4, 4.2
"""Inches of a picture: of a page's whole width, and of half of it or of a telephone's.
Letters are as large in both, so neither is shrunk beyond reading."""
Draw = Callable[[float], str]
"""Draws SVG that is so many inches wide."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1c2024; --soft: #60666c; --line: #d8dce0; --paper: #ffffff;
  --raised: #f5f6f8; --accent: #b84c00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e8ea; --soft: #9aa1a8; --line: #3a4046; --paper: #16191c;
    --raised: #20252a; --accent: #ff9a52;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: .875rem; }
.callout {
  border-left: .25rem solid var(--accent); background: var(--raised);
  padding: .75rem 1rem; margin: 1.5rem 0;
}
.callout p { margin: 0 0 .5rem; font-weight: 600; }
pre, code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
pre {
  margin: 0; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: .875rem;
}
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; width: 100%; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; }
.text { text-align: left; }
tr.first td { border-top: 1px solid var(--line); }
tr.strong td { font-weight: 650; }
tr.bad td { color: var(--accent); }
td.long { white-space: normal; overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
figure svg { display: block; width: 100%; height: auto; }
.wide svg { min-width: 34rem; }
figure img { max-width: 100%; height: auto; }
.narrow { display: none; }
@media (max-width: 40rem) {
  .broad { display: none; }
  .narrow { display: block; }
}
.grid {
  display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
}
.grid figure { margin: .75rem 0; min-width: 0; }
h3 { font-size: .95rem; font-weight: 600; margin: 0 0 .25rem; overflow-wrap: anywhere; }
.shares { display: flex; height: 1.5rem; margin: .75rem 0; overflow: hidden;
          border-radius: .2rem; }
.swatch { display: inline-block; width: .7rem; height: .7rem; margin-right: .5rem;
          border-radius: .1rem; }
td.means { white-space: normal; color: var(--soft); }
svg text { font-family: inherit !important; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem;
     font-size: .875rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
"""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of a whole."""

    name: str
    part: float
    """Of 1."""
    color: str
    meaning: str


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
        under = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self._parts.append(f'<figure><div class="wide">{svg}</div>{under}</figure>')

    def picture(self, draw: Draw, caption: str = "") -> None:
        """A picture that is drawn twice, for wide and for narrow screens."""
        under = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self._parts.append(
            f'<figure><div class="broad">{draw(WIDE_INCHES)}</div>'
            f'<div class="narrow">{draw(NARROW_INCHES)}</div>{under}</figure>'
        )

    def grid(self, pictures: Iterable[tuple[str, Draw, str]]) -> None:
        """Small pictures side by side, as many as fit: title, picture, caption."""
        figures = "".join(
            f"<figure><h3>{escape(title)}</h3>{draw(NARROW_INCHES)}"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
            for title, draw, caption in pictures
        )
        self._parts.append(f'<div class="grid">{figures}</div>')

    def shares(self, shares: Sequence[TimeShare]) -> None:
        """One bar of several parts, and what each of them is."""
        bar = "".join(
            f'<div style="flex: {share.part:.4f}; background: {share.color}"></div>'
            for share in shares
        )
        rows = "".join(
            f'<tr><td class="text"><span class="swatch" style="background: '
            f'{share.color}"></span>{escape(share.name)}</td>'
            f'<td>{100 * share.part:.1f}%</td><td class="text means">'
            f"{escape(share.meaning)}</td></tr>"
            for share in shares
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
            f"<title>{escape(self._title)}</title>\n<style>{STYLE}</style>\n"
            f"</head>\n<body>\n{content}\n</body>\n</html>\n"
        )


def _left(column: int, texts: Sequence[int]) -> str:
    return ' class="text"' if column in texts else ""


def _row(cells: Sequence[str], columns: int, texts: Sequence[int], kind: str) -> str:
    shown = [
        f"<td{_left(column, texts)}>{escape(cell)}</td>"
        for column, cell in enumerate(cells)
    ]
    if len(cells) < columns:
        span = columns - len(cells) + 1
        last = escape(cells[-1])
        shown[-1] = f'<td class="text long" colspan="{span}">{last}</td>'
    mark = f' class="{kind}"' if kind else ""
    return f"<tr{mark}>{''.join(shown)}</tr>"
