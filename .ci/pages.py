"""The pages of `make app`: Voilà's template with a front page of ours, links that lead somewhere, no outside request.

This script needs only the standard library, and Voilà's own templates.
"""

import json
from html import escape
from pathlib import Path

import course

NAME = "dspkit"
_OUTSIDE = "https://cdn."
# Links of the notebooks are written for JupyterLab: here the index is the front page, and a report a served file.
_LINKS = """<script>
(function () {
  const base = document.body.dataset.baseUrl || "/voila/";
  function mend(link) {
    const href = link.getAttribute("href") || "";
    const report = href.match(/reports\\/([^\\/?#]+\\.html)$/);
    if (/(^|\\/)README\\.md$/.test(href)) link.href = base + "tree/";
    else if (report) link.href = base + "files/reports/" + report[1];
    else if (/^[\\w-]*spark[\\w-]*\\.ipynb$/.test(href) || (/\\.md([?#].*)?$/.test(href) && !/^https?:/.test(href)))
      link.replaceWith(...link.childNodes);
  }
  const all = () => document.querySelectorAll("#rendered_cells a[href]").forEach(mend);
  new MutationObserver(all).observe(document.body, { childList: true, subtree: true });
  all();
})();
</script>
"""
_FRONT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>dspkit</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:;base64,=">
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.45 }}
body {{ max-width: 1180px; margin: 2rem auto; padding: 0 1rem }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1rem }}
a.card {{ color: inherit; text-decoration: none; border: 1px solid #8886; border-radius: 8px; overflow: hidden }}
a.card:hover, a.card:focus {{ border-color: #0072b2; box-shadow: 0 0 0 1px #0072b2 }}
.card img {{ display: block; width: 100%; height: 150px; object-fit: cover; object-position: top; background: #fff }}
.card div {{ padding: .6rem .8rem 1rem }} h2 {{ font-size: 1.05rem; margin: 0 0 .3rem }} p {{ margin: 0 }}
small {{ opacity: .75 }}
</style></head><body>
<h1>dspkit</h1>
<p>A laboratory for elastic stream processing: published scaling and placement policies with sliders, on simulated jobs.
Each page starts a kernel of its own, which takes some seconds.</p><br>
<main>{cards}</main></body></html>
"""
_CARD = """<a class="card" href="{{{{ base_url }}}}voila/render/{name}.ipynb">{picture}
<div><h2>{title}</h2><p>{learn}</p><small>{minutes} minutes</small></div></a>"""


def write(folder: Path, own: Path) -> None:
    """Write the template below `folder`, a part of JUPYTER_PATH; `own` has Voilà's templates."""
    home = folder / "voila" / "templates" / NAME
    home.mkdir(parents=True, exist_ok=True)
    (home / "conf.json").write_text(json.dumps({"base_template": "lab"}))
    page = (own / "lab" / "index.html.j2").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines(keepends=True) if _OUTSIDE not in line]
    done = "".join(lines).replace(
        "{{ super() }}\n{%- endblock body_footer -%}", _LINKS + "{{ super() }}\n{%- endblock body_footer -%}"
    )
    (home / "index.html.j2").write_text(done, encoding="utf-8")
    (home / "tree-lab.html").write_text(front(), encoding="utf-8")


def front() -> str:
    """Return the front page: a card with a picture for each notebook that needs no Spark."""
    cards = []
    for path in sorted(course.NOTEBOOKS.glob("[0-9]*.ipynb")):
        if "spark" in path.stem:
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        told, picture = course.about(notebook), f"images/{path.stem}_1.png"
        shown = (
            f'<img src="{{{{ base_url }}}}voila/files/{picture}" alt="">'
            if (course.NOTEBOOKS / picture).exists()
            else ""
        )
        words = {"title": escape(course.title(notebook)), "learn": escape(told["learn"]), "minutes": told["minutes"]}
        cards.append(_CARD.format(name=path.stem, picture=shown, **words))
    return _FRONT.format(cards="\n".join(cards))
