"""One self-contained HTML page: style and pictures inside, nothing loaded from afar.

    page = Page("CartPole-v1")
    page.heading("How it scales")
    page.figure(svg, "steps per second")
    path.write_text(page.render())

Everything given as text is escaped; pictures are the SVG that `charts` draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

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
figure svg { display: block; width: 100%; min-width: 34rem; height: auto; }
svg text { font-family: inherit !important; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem;
     font-size: .875rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; white-space: pre-line; }
"""


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
