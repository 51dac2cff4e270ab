"""The style sheet for charts, a matrix and pictures, which a run's report adds to the style sheet of all pages."""

from __future__ import annotations

REPORT_STYLE = """
:root { --s0: #0072b2; --s1: #d55e00; --right: #1b7f4b; --wrong: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --s0: #56b4e9; --s1: #f08a4b; --right: #3fae76; --wrong: #f08a4b; } }
figure { margin: 0; }
table { width: auto; min-width: min(100%, 420px); }
th, td { padding-right: 1.4rem; overflow-wrap: break-word; }
dl.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 240px), 1fr)); gap: .1rem 2rem; }
dl.pairs div { display: grid; grid-template-columns: 9.5rem 1fr; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: .8rem; }
svg.chart, svg.matrix { width: 100%; height: auto; margin: 0; }
svg.chart .grid { stroke: var(--edge); stroke-width: .7; fill: none; }
svg.chart .mark { stroke: var(--dim); stroke-dasharray: 3 3; fill: none; }
svg.chart .series { fill: none; stroke-width: 2; }
svg .bar { stroke: var(--wrong); stroke-width: 2; opacity: .6; }
svg .s0 { stroke: var(--s0); }
svg .s1 { stroke: var(--s1); stroke-dasharray: 6 3; }
svg .dot.s0 { fill: var(--s0); stroke: none; }
svg .dot.s1 { fill: var(--s1); stroke: none; }
svg .title { text-anchor: start; font-weight: 600; font-size: 13px; }
svg .tick { fill: var(--dim); font-size: 11px; }
svg .start { text-anchor: start; }
svg .end { text-anchor: end; }
svg rect.frame { fill: var(--soft); stroke: var(--edge); stroke-width: .7; }
svg rect.right { fill: var(--right); stroke: none; }
svg rect.wrong { fill: var(--wrong); stroke: none; }
svg .number { font-size: 10.5px; }
svg .number.full { fill: var(--back); }
.images { display: grid; grid-template-columns: repeat(auto-fill, minmax(104px, 1fr)); gap: .8rem .6rem; }
.images:has(.pair) { grid-template-columns: repeat(auto-fill, minmax(208px, 1fr)); }
.pair { display: flex; gap: 3px; }
.pair img { min-width: 0; }
.images img { width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated; border-radius: 4px;
  background: var(--soft); }
.images figcaption { font-size: .8rem; overflow-wrap: anywhere; line-height: 1.3; }
"""
