"""Colours and shapes of a page, for light and dark screens, phones and paper."""

from __future__ import annotations

# Okabe and Ito's colours; on dark ground the dark ones are lighter.
LIGHT = (
    "--paper:#fff;--ink:#1b1f24;--soft:#57606a;--rule:#d0d7de;--shade:#f3f5f7;--accent:#0b5cad;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#007a5a;--c3:#b1478b;"
    "--c4:#8a6d00;--c5:#2f86c1;--c6:#7a5195;--c7:#4d4d4d"
)
DARK = (
    "--paper:#14181d;--ink:#e6e9ec;--soft:#a3adb8;--rule:#38414b;--shade:#1e242b;--accent:#7cc0ff;"
    "--c0:#56b4e9;--c1:#ff9248;--c2:#35c79b;--c3:#e58ac2;"
    "--c4:#f0e442;--c5:#8fb8ff;--c6:#c3a3e0;--c7:#b8bfc6"
)

_MARKS = (
    ".plot{font:13px system-ui,sans-serif;background:var(--paper)}"
    ".plot text{fill:var(--ink)}.plot .end{text-anchor:end}"
    ".plot .middle,.plot .caption{text-anchor:middle}.plot .label{font-weight:600}"
    ".grid{stroke:var(--rule);stroke-width:1}"
    ".line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}"
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 4}"
    ".band{fill:var(--c);opacity:.2;stroke:none}.dot,.bar{fill:var(--c)}"
    ".error{stroke:var(--c);stroke-width:2;opacity:.55}"
    + "".join(f".c{at}{{--c:var(--c{at})}}" for at in range(8))
)
CHART_STYLE = f"svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}{_MARKS}".replace(
    "\n", ""
)

STYLE = f"""
:root{{color-scheme:light;{LIGHT}}}
@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{DARK}}}}}
:root[data-theme=dark]{{color-scheme:dark;{DARK}}}
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:72rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}}
a{{color:var(--accent)}}h1{{font-size:1.6rem;margin:.4em 0}}h2{{font-size:1.3rem;margin:2em 0 .4em;
border-bottom:1px solid var(--rule)}}h3{{font-size:1.05rem;margin:1.4em 0 .3em}}
header{{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:baseline;
justify-content:space-between}}
nav ul{{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;margin:0}}
.soft{{color:var(--soft)}}
button{{font:inherit;color:inherit;background:var(--shade);border:1px solid var(--rule);
border-radius:.4rem;padding:.25rem .7rem;cursor:pointer}}
:focus-visible{{outline:3px solid var(--accent);outline-offset:2px}}
.scroll{{overflow-x:auto;max-width:100%}}
table{{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}}
caption{{text-align:left;color:var(--soft);padding:.3rem 0}}
th,td{{padding:.3rem .6rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}}
th[scope=row],th:first-child,td.text{{text-align:left}}
th[scope=row]{{position:sticky;left:0;background:var(--paper);font-weight:500}}
thead th{{background:var(--shade)}}
thead button{{border:0;background:none;padding:0;font-weight:600;text-align:inherit}}
th[aria-sort=ascending] button::after{{content:" ▲"}}
th[aria-sort=descending] button::after{{content:" ▼"}}
.tools{{display:flex;gap:.5rem;margin:.5rem 0 1rem}}
.charts{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:1rem}}
.chart{{margin:0;max-width:40rem;break-inside:avoid}}
.chart svg.plot{{width:100%;height:auto;display:block}}
figcaption{{color:var(--soft);font-size:.88rem;text-align:center}}
.legend{{display:flex;flex-wrap:wrap;gap:.1rem .9rem;list-style:none;padding:0;font-size:.82rem;
justify-content:center;margin:.3rem 0}}
.key{{width:24px;height:12px;margin-right:.3rem;vertical-align:middle}}
pre{{background:var(--shade);padding:.6rem;overflow-x:auto;font-size:.82rem;border-radius:.4rem;
white-space:pre-wrap;overflow-wrap:anywhere}}
details{{margin:.4rem 0}}summary{{cursor:pointer}}
.failed{{border-left:4px solid var(--c1);padding-left:.7rem}}
{_MARKS}
@media(max-width:40rem){{body{{padding:.7rem;font-size:15px}}th,td{{padding:.3rem .4rem}}
.charts{{grid-template-columns:1fr}}}}
@media print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{
color-scheme:light;{LIGHT}}}
body{{max-width:none;font-size:10pt;padding:0}}button.theme,.tools,nav{{display:none}}
.scroll{{overflow:visible}}table{{font-size:7.5pt}}th,td{{padding:1pt 3pt}}
section{{break-inside:auto}}h2,h3{{break-after:avoid}}}}
"""
