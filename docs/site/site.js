// Tables that scroll can be reached by keyboard, and the ledger can be searched. No request leaves this page.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset__table, .wide, .highlight > pre, .highlight code, svg")) {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
  }
  const title = document.querySelector("h1");
  if (!title || !/ledger/i.test(title.textContent)) return;
  const tables = [...document.querySelectorAll("article table")].filter((t) => /printed/.test(t.tHead.textContent) && /class/.test(t.tHead.textContent));
  const at = (table, name) => [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === name);
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows].map((row) => ({ row, text: row.textContent.toLowerCase(), kind: row.cells[at(table, "class")].textContent.trim() })));
  const box = document.createElement("div");
  box.className = "filter";
  box.innerHTML = '<label for="words">Search</label><input id="words" type="search"><label for="kind">class</label><select id="kind"><option value="">all</option></select><span role="status"></span>';
  for (const kind of [...new Set(rows.map((r) => r.kind))].sort()) box.querySelector("select").add(new Option(kind, kind));
  const show = () => {
    const words = box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean), kind = box.querySelector("select").value;
    let n = 0;
    for (const r of rows) {
      r.row.hidden = (kind && r.kind !== kind) || !words.every((word) => r.text.includes(word));
      n += !r.row.hidden;
    }
    for (const table of tables) table.hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
    box.querySelector("span").textContent = `${n} of ${rows.length} rows`;
  };
  box.addEventListener("input", show);
  const first = tables[0].closest(".md-typeset__scrollwrap") ?? tables[0];
  let head = first;
  while (head.previousElementSibling && head.tagName !== "H2") head = head.previousElementSibling;
  head.before(box);
  show();
});
// Each block's buttons are a landmark: number them, so that they differ.
const label = () => document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav) => nav.setAttribute("aria-label", `Code ${document.querySelectorAll(".md-code__nav[aria-label]").length + 1}`));
document.addEventListener("DOMContentLoaded", () => { label(); new MutationObserver(label).observe(document.body, { childList: true, subtree: true }); });
