"""Render one self-contained HTML page: style, modules and data inline, nothing fetched, so that it opens from disk or
mail.

All user text is in a JSON block and is rendered as text, never as markup; a content security policy allows exactly this
script and this style, by their hashes.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from multihead.report.data import ReportData
from multihead.report.serialize import serialize_report

VIEWS = Path(__file__).parent / "views"
MAIN = "report.js"

IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const) (\w+))", re.MULTILINE)
LOOSE = re.compile(r"[<>&\u2028\u2029\ud800-\udfff]")  # may end the block, or cannot be written as UTF-8

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="multihead">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<noscript><p>This page draws itself with JavaScript, from the data inside this file; nothing is fetched. Please allow
scripts for it{instead}.</p></noscript>
<main id="report"></main>
<script type="application/json" id="facts">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def render_report(facts: ReportData) -> str:
    """Return the report page as text, to be written as UTF-8."""
    return render(MAIN, facts.title, serialize_report(facts), ", or read metrics.json in the same directory")


def render(main: str, title: str, data: Any, instead: str = "") -> str:
    """Return a page that a view draws from data. instead: advice where scripts are disabled."""
    style, script = (VIEWS / "style.css").read_text(encoding="utf-8"), bundle(main)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    shown = html.escape("".join(letter if letter.isprintable() else " " for letter in title))
    return PAGE.format(
        policy=policy, title=shown, style=style, data=escape_json(data), script=script, instead=html.escape(instead)
    )


def escape_json(data: Any) -> str:
    """Return JSON that is safe inside a script element: no tag, entity, line separator or lone surrogate."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return LOOSE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def bundle(main: str, folder: Path = VIEWS) -> str:
    """Return the modules as one script, since an inline script cannot import files.

    Each becomes a function that returns its exports, after those it imports, so names stay separate as in modules.
    """
    parts: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in parts:
            return
        if name in above:
            raise ValueError(f"circular import of views: {' -> '.join((*above, name))}")
        source = (folder / name).read_text(encoding="utf-8")
        for match in IMPORT.finditer(source):
            add(match[2], (*above, name))
        exports = ", ".join(EXPORT.findall(source))
        body = EXPORT.sub("", IMPORT.sub(lambda match: f"const {{ {match[1]} }} = {_variable(match[2])};\n", source))
        if re.search(r"^(import|export)\b", body, re.MULTILINE) or "</script" in body or "<!--" in body:
            raise ValueError(
                f"{name}: only one-line `import {{ a, b }} from` and `export function|const` can be joined"
            )
        parts[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"

    add(main, ())
    return '"use strict";\n' + "".join(parts.values())


def _variable(name: str) -> str:
    return f"${name.removesuffix('.js').replace('-', '_')}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
