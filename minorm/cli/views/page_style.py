"""The style sheet of the page of `minorm check --html`: light and dark, for wide screens and phones."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --text: #1c2430; --dim: #5b6675; --edge: #cdd5df; --soft: #f3f6f9;
  --trained: #dcebfb; --trained-edge: #5b93cc; --frozen: #e9e4f5; --frozen-edge: #8a74b9; --bar: #d2691e;
  --good: #1b7f4b; --bad: #c02c2c; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181f; --text: #e3e8ef; --dim: #97a3b3; --edge: #3a4453; --soft: #1d232d; --trained: #16324d;
    --trained-edge: #5f9bd8; --frozen: #2e2748; --frozen-edge: #a08bd6; --bar: #e08a45;
    --good: #58c48b; --bad: #f07f7f; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
p, li, dd { overflow-wrap: anywhere; }
p { margin: .2rem 0; }
small { color: var(--dim); }
.verdicts { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: .5rem; padding: 0;
  list-style: none; }
.verdicts li { background: var(--soft); border-left: 4px solid var(--edge); border-radius: 4px; padding: .4rem .6rem; }
.verdicts .ok { border-color: var(--good); }
.verdicts .bad { border-color: var(--bad); }
.scroll { overflow-x: auto; }
svg { display: block; margin: .3rem auto; }
svg rect { stroke-width: 1.2; fill: var(--soft); stroke: var(--edge); }
svg rect.trained { fill: var(--trained); stroke: var(--trained-edge); }
svg rect.frozen { fill: var(--frozen); stroke: var(--frozen-edge); stroke-dasharray: 5 3; }
svg rect.value { fill: none; stroke-dasharray: 2 3; }
svg rect.bar { fill: var(--bar); stroke: none; }
svg text { fill: var(--text); text-anchor: middle; font-size: 12.5px; }
svg .name { font-weight: 600; }
svg .small { fill: var(--dim); font-size: 11px; }
svg .line { fill: none; stroke: var(--dim); stroke-width: 1.2; opacity: .75; }
svg a:hover rect { stroke-width: 2.4; }
svg a .name { text-decoration: underline; text-decoration-color: var(--dim); text-underline-offset: 2px; }
details { border: 1px solid var(--edge); border-radius: 6px; margin: .4rem 0; padding: .3rem .7rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
details:has(:target) { border-color: var(--trained-edge); }
table { border-collapse: collapse; width: 100%; font-size: .86rem; }
th { text-align: left; color: var(--dim); font-weight: 500; border-bottom: 1px solid var(--edge); }
th, td { padding: .22rem .5rem; vertical-align: top; }
td { border-bottom: 1px solid var(--soft); overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.cost i { display: block; height: 3px; margin-left: auto; background: var(--bar); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem .8rem; margin: 0; font-size: .9rem; }
dt { color: var(--dim); }
dd { margin: 0; }
@media (max-width: 640px) {
  main { padding: .6rem; }
  .wide { display: none; }
  th, td { padding: .2rem .25rem; }
  table { font-size: .78rem; }
}
"""
