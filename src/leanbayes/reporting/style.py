"""Colours and shapes of a page, for light and dark screens, phones and paper."""

from __future__ import annotations

import re

# Okabe and Ito's colours, darker on light ground and lighter on dark so that thin lines are seen.
LIGHT = {
    "paper": "#ffffff", "ink": "#1b1f24", "soft": "#57606a", "rule": "#dde2e8", "shade": "#f5f7f9",
    "accent": "#0b5cad", "faint": "#c3cad2", "gap": "#d1495b", "good": "#00693e", "bad": "#a8321a",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#008a63", "c3": "#b1478b",
    "c4": "#8f7000", "c5": "#3fa0dd", "c6": "#6c4ba3", "c7": "#4d4d4d",
}  # fmt: skip
DARK = {
    "paper": "#12161b", "ink": "#e6e9ec", "soft": "#a3adb8", "rule": "#2c343d", "shade": "#1a2027",
    "accent": "#7cc0ff", "faint": "#49535e", "gap": "#ff8a9a", "good": "#5fd6a2", "bad": "#ff9d85",
    "c0": "#56b4e9", "c1": "#ff9248", "c2": "#35c79b", "c3": "#e58ac2",
    "c4": "#f0e442", "c5": "#9cc2ff", "c6": "#c3a3e0", "c7": "#c3cad1",
}  # fmt: skip
# Matplotlib's viridis in steps: even to the eye, and to a colour-blind one.
SHADES = (
    *("#440154", "#482173", "#433e85", "#38598c", "#2d708e", "#25858e"),
    *("#1e9b8a", "#2ab07f", "#52c569", "#86d549", "#c2df23", "#fde725"),
)
FONT = 'ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif'


def _colours(table: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in table.items())


_MARKS = (
    f".plot{{font-family:{FONT};font-size:12px}}.ground{{fill:var(--paper)}}"
    ".plot text{fill:var(--ink)}.plot .end{text-anchor:end}"
    ".plot .middle,.plot .caption{text-anchor:middle}.plot .label{fill:var(--soft)}"
    ".plot .small{font-size:10.5px}.plot .strong{font-weight:600;paint-order:stroke;"
    "stroke:var(--paper);stroke-width:3;stroke-linejoin:round}"
    ".grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--faint);stroke-width:1}"
    ".diagonal{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 3}"
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;"
    "stroke-linecap:round}"
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:1.5 4}"
    ".band{fill:currentColor;opacity:.18;stroke:none}.dot,.bar{fill:currentColor}"
    ".pale{opacity:.4}.gap{fill:var(--gap);opacity:.4}.cap{stroke:currentColor;stroke-width:2}.trough{fill:var(--rule);opacity:.6}"
    ".area{fill:currentColor;fill-opacity:.25;stroke:currentColor;stroke-width:1.5}"
    ".full{fill-opacity:.75;stroke:none}"
    ".error{fill:none;stroke:currentColor;stroke-width:2;opacity:.45}"
    ".range{stroke:currentColor;stroke-width:3;opacity:.4}"
    ".front{fill:none;stroke:var(--soft);stroke-width:1.2;stroke-dasharray:5 3}"
    ".ring{fill:none;stroke:currentColor;stroke-width:1.5}"
    ".lead{stroke:var(--soft);stroke-width:.8}"
    ".plot .name{paint-order:stroke;stroke:var(--paper);stroke-width:3.5;stroke-linejoin:round}"
    ".contour{fill:none;stroke:#ffffff;stroke-width:.7;opacity:.55}"
    ".pin{fill:#ffffff;stroke:#111111;stroke-width:1.5}"
    ".plot .pinned{fill:#ffffff;stroke:#111111;stroke-width:2.6;paint-order:stroke;"
    "stroke-linejoin:round;font-weight:600}"
    + "".join(f".c{at}{{color:var(--c{at})}}" for at in range(8))
    + "".join(f".h{at}{{fill:{shade}}}" for at, shade in enumerate(SHADES))
    + ".method.off{color:var(--faint)}.off .line{stroke-width:1.2;stroke-dasharray:none}"
    ".off .error,.off .band,.off .name,.off .lead{display:none}"
)
# A file of its own knows no variables: drawing programs do not.
CHART_STYLE = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], _MARKS)

STYLE = f"""
:root{{color-scheme:light;{_colours(LIGHT)}}}
@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;
{_colours(DARK)}}}}}
:root[data-theme=dark]{{color-scheme:dark;{_colours(DARK)}}}
*{{box-sizing:border-box}}html{{scroll-padding-top:3.5rem;-webkit-text-size-adjust:100%}}
body{{margin:0 auto;max-width:86rem;padding:1.5rem;background:var(--paper);color:var(--ink);
font:16px/1.55 {FONT};overflow-wrap:break-word}}
a{{color:var(--accent)}}
h1{{font-size:1.9rem;line-height:1.2;letter-spacing:-.015em;margin:0;font-weight:680}}
h2{{font-size:1.35rem;letter-spacing:-.01em;margin:0 0 .5rem;font-weight:650}}
h3{{font-size:1.02rem;margin:1.6rem 0 .3rem;font-weight:620}}
h4{{font-size:.95rem;margin:1.2rem 0 .2rem;font-weight:600}}
p{{margin:.4rem 0;max-width:46rem}}
header{{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;
justify-content:space-between;padding-bottom:1rem;grid-column:1/-1}}
.report section{{padding:1.6rem 0 1.2rem;border-top:1px solid var(--rule)}}
.report section:first-child{{border-top:0;padding-top:.4rem}}
nav{{position:sticky;top:0;z-index:2;background:var(--paper);border-bottom:1px solid var(--rule)}}
nav ul{{display:flex;gap:.1rem 1.1rem;list-style:none;padding:.55rem 0;margin:0;overflow-x:auto;
white-space:nowrap;scrollbar-width:thin}}
nav a{{color:var(--soft);text-decoration:none;font-size:.88rem}}
nav a:hover,nav a.here{{color:var(--ink)}}nav a.here{{font-weight:600}}
main{{min-width:0}}
@media(min-width:70rem){{.report{{display:grid;grid-template-columns:12.5rem minmax(0,1fr);
gap:0 2.5rem}}nav{{align-self:start;border:0;max-height:100vh;overflow-y:auto;padding-top:.4rem}}
nav ul{{flex-direction:column;white-space:normal}}html{{scroll-padding-top:.5rem}}
footer{{grid-column:2}}}}
.soft{{color:var(--soft)}}.good{{color:var(--good)}}.bad{{color:var(--bad)}}
button{{font:inherit;font-size:.85rem;color:inherit;background:var(--shade);
border:1px solid var(--rule);border-radius:.45rem;padding:.25rem .7rem;cursor:pointer}}
button:hover{{border-color:var(--soft)}}
:focus-visible{{outline:3px solid var(--accent);outline-offset:2px}}
.cards{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,13.5rem),1fr));
gap:.8rem;margin:.9rem 0}}
.card{{background:var(--shade);border:1px solid var(--rule);border-radius:.8rem;
padding:.85rem 1rem}}
.card p{{margin:0}}.card .what{{font-size:.8rem;color:var(--soft)}}
.card .who{{font-size:1.2rem;font-weight:650;line-height:1.3;overflow-wrap:anywhere}}
.card .much{{font-variant-numeric:tabular-nums}}.card .than{{font-size:.82rem;color:var(--soft)}}
.found{{padding-left:1.1rem;margin:.6rem 0}}.found li{{margin:.25rem 0;max-width:48rem}}
.scroll{{overflow-x:auto;max-width:100%;border:1px solid var(--rule);border-radius:.6rem}}
table{{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;
min-width:100%}}
caption{{text-align:left;color:var(--soft);padding:.5rem .7rem}}
th,td{{padding:.36rem .7rem;border-bottom:1px solid var(--rule);text-align:right;
white-space:nowrap}}tbody tr:last-child>*{{border-bottom:0}}
tbody tr:hover>*{{background:var(--shade)}}
th[scope=row],th:first-child,td.text{{text-align:left}}
th[scope=row]{{position:sticky;left:0;background:var(--paper);font-weight:550;max-width:16rem;
white-space:normal}}
thead th{{background:var(--shade);border-bottom:1px solid var(--rule)}}
thead button{{border:0;background:none;padding:0;font-size:inherit;font-weight:600;
text-align:inherit}}
th[aria-sort=ascending] button::after{{content:" ▲"}}
th[aria-sort=descending] button::after{{content:" ▼"}}
td .mark{{font-size:.72rem;padding-left:.25rem}}
.tools{{display:flex;gap:.5rem;margin:.5rem 0 1rem}}
.table textarea{{width:100%;height:8rem}}
.charts,.panels,.pair{{display:grid;gap:1.4rem 1.6rem;margin:.9rem 0;
grid-template-columns:repeat(auto-fill,minmax(min(100%,21rem),1fr))}}
.panels{{grid-template-columns:repeat(auto-fill,minmax(min(100%,12.5rem),1fr));gap:1rem}}
.chart{{margin:0;max-width:44rem;break-inside:avoid;min-width:0}}
.panels .chart{{max-width:22rem}}
.chart svg.plot,.shown img{{width:100%;height:auto;display:block}}
figcaption{{font-size:.88rem;font-weight:600;margin:0 0 .3rem;overflow-wrap:anywhere}}
.legend{{display:flex;flex-wrap:wrap;gap:.1rem .9rem;list-style:none;padding:0;font-size:.82rem;
margin:.3rem 0}}
.key{{width:24px;height:12px;margin-right:.35rem;vertical-align:middle;flex:none}}
.chooser{{position:relative;display:flex;flex-wrap:wrap;
gap:.35rem;margin:.7rem 0;align-items:center}}
.chip{{position:relative;display:inline-flex;align-items:center;border:1px solid var(--rule);
border-radius:1rem;padding:.08rem .6rem .08rem .5rem;font-size:.82rem;max-width:100%;
cursor:pointer}}
.chip bdi{{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}}
.chip input{{position:absolute;opacity:0;width:1px;height:1px;pointer-events:none}}
.chip:has(input:not(:checked)){{color:var(--soft);background:var(--shade)}}
.chip:has(input:not(:checked)) .key{{color:var(--faint)}}
.chip:has(:focus-visible){{outline:3px solid var(--accent);outline-offset:2px}}
.chooser button{{border-radius:1rem;padding:.08rem .7rem;font-size:.82rem}}
.js .chart.off,.js .examples.off{{display:none}}
.examples{{margin:.6rem 0;break-inside:avoid}}.examples summary{{font-weight:600}}
.strip{{display:grid;grid-template-columns:repeat(auto-fill,minmax(5.4rem,1fr));gap:.6rem;
list-style:none;padding:0;margin:.3rem 0 .8rem;max-width:60rem}}
.strip img{{width:100%;image-rendering:pixelated;border-radius:.3rem;background:#fff;
border:1px solid var(--rule);display:block}}
.strip li{{font-size:.74rem;line-height:1.3;min-width:0}}
.shown{{margin:1rem 0}}.shown img{{max-width:70rem;background:#fff;border-radius:.4rem}}
.warm td[data-heat]{{color:var(--ink)}}
pre{{background:var(--shade);padding:.8rem;overflow-x:auto;font-size:.8rem;border-radius:.6rem;
white-space:pre-wrap;overflow-wrap:anywhere;max-height:32rem;overflow-y:auto}}
details{{margin:.5rem 0}}summary{{cursor:pointer;font-size:.92rem}}
.failed{{border-left:4px solid var(--c1);padding-left:.7rem}}
footer{{border-top:1px solid var(--rule);padding:1rem 0;font-size:.85rem}}
{_MARKS}
@media(max-width:40rem){{body{{padding:.7rem;font-size:15px}}h1{{font-size:1.45rem}}
th,td{{padding:.32rem .5rem}}th[scope=row]{{max-width:8.5rem}}.charts{{grid-template-columns:1fr}}
.panels{{grid-template-columns:1fr 1fr;gap:.8rem}}.chart svg.plot{{font-size:13.5px}}
.panels svg.plot{{font-size:16px}}.panels .up{{display:none}}
.chooser{{flex-wrap:nowrap;overflow-x:auto;scrollbar-width:thin;padding:.25rem 0}}
.chooser>*{{flex:none}}.cards{{grid-template-columns:1fr 1fr;gap:.6rem}}
.card{{padding:.7rem .8rem}}.card .who{{font-size:1.05rem}}}}
@media print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{
color-scheme:light;{_colours(LIGHT)}}}
body.report{{display:block;max-width:none;font-size:10pt;padding:0}}
button,.tools,nav,.chip:has(input:not(:checked)){{display:none}}
.scroll{{overflow:visible;border:0}}table{{font-size:6.5pt;min-width:0}}
th,td{{padding:1pt 2pt}}thead button{{display:inline}}thead th{{white-space:normal}}
td .mark{{font-size:5pt}}pre{{max-height:none}}
section{{break-inside:auto}}h2,h3{{break-after:avoid}}
.charts{{grid-template-columns:1fr 1fr}}.panels{{grid-template-columns:repeat(4,1fr)}}}}
"""
