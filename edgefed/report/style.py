"""The style of a report: one column, system fonts, light or dark by the reader's preference."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--ink:#24292f;--quiet:#5f6872;--ground:#fff;--card:#f6f8fa;
--rule:#d8dee4;--good:#15803d;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{--ink:#dde3ea;--quiet:#98a2ad;--ground:#0d1117;
--card:#161b22;--rule:#2d333b;--good:#4ade80;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:800px;padding:32px 24px 64px;background:var(--ground);
color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:26px;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:40px 0 8px}
h3{font-size:14px;margin:24px 0 8px}
p{margin:4px 0 12px}
.quiet{color:var(--quiet)}
.good{color:var(--good)}.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:8px;
margin:20px 0}
.tile{background:var(--card);border-radius:8px;padding:10px 12px}
.tile b{display:block;font-size:18px;font-weight:600;overflow-wrap:anywhere}
.tile span{color:var(--quiet);font-size:13px;overflow-wrap:anywhere}
.scroll{overflow:auto;max-height:640px}
svg.chart{display:block;max-width:100%;height:auto}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{text-align:left;padding:3px 14px 3px 0;vertical-align:top;border-bottom:1px solid var(--rule)}
th{color:var(--quiet);font-weight:500;white-space:nowrap}
th+th,td+td{padding-left:4px}
table+.scroll,.scroll+table{margin-top:16px}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.wide{overflow-wrap:anywhere}
td:first-child{white-space:nowrap;width:1%}
th:first-child:not(:last-child){width:1%}
pre{background:var(--card);border-radius:8px;padding:14px;overflow:auto;font-size:13px;
line-height:1.45;margin:8px 0}
summary{cursor:pointer;color:var(--quiet);margin:8px 0}
@media print{body{max-width:none;padding:0}.scroll{max-height:none;overflow:visible}}
"""
