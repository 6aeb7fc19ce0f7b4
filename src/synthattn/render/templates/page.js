"use strict";
// What takes a script: the choice of a theme, sorted tables, copied commands. All else is in the page already.
const root = document.documentElement;
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

const theme = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
let now = 0;
// Some browsers keep nothing for files.
try { now = Math.max(0, themes.indexOf(localStorage.getItem("synthattn-theme"))); } catch { /* then it is forgotten */ }
function choose() {
  root.dataset.theme = themes[now];
  theme.textContent = `Theme: ${themes[now]}`;
  try { localStorage.setItem("synthattn-theme", themes[now]); } catch { /* then it is forgotten */ }
}
theme.hidden = false;
theme.addEventListener("click", () => { now = (now + 1) % themes.length; choose(); });
choose();

// Heads sort a table: first with the largest at the top, then with the smallest, then as it was.
for (const table of all("table.data")) {
  if (table.tHead.rows.length > 1) continue;
  const [body] = table.tBodies, given = [...body.rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const key = (row) => column ? Number(row.cells[column]?.dataset.key || NaN) : row.cells[0].textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { none: "descending", descending: "ascending", ascending: "" }[head.ariaSort || "none"];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next) head.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const compare = (one, other) => {
        const [a, b] = [key(one), key(other)];
        if (typeof a === "string") return sign * b.localeCompare(a);
        // What has no number stays below.
        return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
      };
      body.append(...(next ? [...given].sort(compare) : given));
    });
  });
}

for (const button of all(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const command = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });
}
addEventListener("beforeprint", () => { for (const each of all("details")) each.open = true; });
root.dataset.ready = "true";
