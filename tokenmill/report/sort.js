// Sorts a table by the column whose head is clicked, or chosen with Enter: the largest first, and the smallest at the next click.
const FACTORS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
const numberOf = (text) => {
  const [, digits, unit] = /^(-?[\d,]*\.?\d+)(?: ([kMGT]?)(?:B|B\/s|bytes|%|s))?$/.exec(text) ?? [];
  return digits === undefined ? NaN : Number(digits.replaceAll(",", "")) * (FACTORS[unit] ?? 1);
};
const compare = (a, b, sign) => {
  const [m, n] = [numberOf(a), numberOf(b)];
  if (isNaN(m) || isNaN(n)) return isNaN(m) - isNaN(n) || sign * b.localeCompare(a);
  return sign * (n - m);
};
for (const head of document.querySelectorAll("th")) {
  const textOf = (row) => row.cells[head.cellIndex].textContent.trim();
  head.tabIndex = 0;
  head.onclick = () => {
    const sign = head.ariaSort === "descending" ? -1 : 1;
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = sign === 1 ? "descending" : "ascending";
    const body = head.closest("table").tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(textOf(a), textOf(b), sign)));
  };
  head.onkeydown = (event) => event.key === "Enter" && head.click();
}
