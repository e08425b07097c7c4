"use strict";
// The address after # says what is shown: page, set, start and sort (of the list), by and q (a search), i (an item), at (its first
// token that is shown), n (how many are shown), token (a position to point at). Texts come from documents of others: they are set as textContent, never as HTML.

const $ = (id) => document.getElementById(id);
const TOKENS_N = 2000; // that an answer has, unless all are wanted
const TOKENS_MAX = 1 << 16; // that an answer has at most
let info = null; // the answer to api/info
let state = {}; // the parts of the address
let listed = null; // what the list shows
let n_asked = 0; // numbers the questions about a typed text: a late answer does not replace a newer one

async function ask(name, values) {
  const reply = await fetch(`api/${name}?${parameters(values)}`);
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}

/** Runs an action, and shows its error. */
async function shown(action) {
  $("error").hidden = true;
  try {
    await action();
  } catch (error) {
    $("error").textContent = error instanceof TypeError ? `No answer. Is \`tokenmill view\` still running? (${error.message})` : error.message;
    $("error").hidden = false;
  }
}

function made(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

/** The values as parameters of an address; undefined leaves one out. */
const parameters = (values = {}) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined));

/** Changes the address. */
function go(changes) {
  location.hash = parameters({ ...state, ...changes });
}

const number = (name) => Number(state[name] ?? 0);
const words = (n) => n.toLocaleString("en");
const step = () => number("n") || TOKENS_N; // tokens of an item that are shown at once

/** Adds the rows of a page of answers to a list, whose button then fetches the next page. */
async function fill(id, start, fetchPage, rowsOf) {
  $(`${id}-status`).textContent = "looking …";
  const found = await fetchPage(start);
  $(id).append(...rowsOf(found));
  const more = $(`${id}-more`), n = $(id).children.length;
  $(`${id}-status`).textContent = `${words(n)} shown${found.next === null ? "; that is all" : `; the next is number ${words(found.next)}`}`;
  more.hidden = found.next === null;
  more.onclick = () => shown(() => fill(id, found.next, fetchPage, rowsOf));
}

/** Fills a box with tokens; `chosen` is the position in it of one to point at. */
function showTokens(box, found, chosen = -1, isSequence = false) {
  const first = found.at ?? 0, starts = new Map(found.starts?.map((k, n) => [k, found.n_before + n]));
  const place = (k) => (isSequence ? `document ${words(starts.get(k))} of sequence ${words(found.i)}` : "a document");
  box.replaceChildren(...found.ids.map((id, k) => {
    const [text, bytes, isSpecial] = found.tokens[id];
    const hex = bytes?.match(/../g) ?? [];
    const element = made("b", text, isSpecial ? "special" : `t${(first + k) % 5}`);
    const isLearned = found.learned?.[k] ?? 1;
    element.classList.toggle("start", starts.has(k));
    element.classList.toggle("unlearned", !isLearned);
    element.classList.toggle("found", k === chosen);
    element.tabIndex = k === Math.max(chosen, 0) ? 0 : -1;
    element.details = [
      text.replaceAll("\n", ""), `id ${id}`, bytes === null ? "bytes not known" : `bytes ${hex.join(" ") || "none"}`, `position ${words(first + k)}`,
      found.first_token !== undefined && found.first_token !== null && `${words(found.first_token + first + k)} in the dataset`,
      isSpecial && "special", starts.has(k) && `${place(k)} begins or goes on here`, !isLearned && "not counted by the loss",
    ].filter((part) => part !== false).join(" · ");
    return element;
  }));
  if (!found.ids.length) box.textContent = "no tokens";
}

for (const kind of ["mouseover", "focusin", "click"]) {
  document.addEventListener(kind, (event) => ($("details").textContent = event.target.details ?? $("details").textContent));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const next = { ArrowRight: event.target.nextSibling, ArrowLeft: event.target.previousSibling }[event.key];
  if (event.target.details && next) {
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
  if (state.page !== "items") return;
  if (event.key === "/") {
    event.preventDefault();
    $("q").focus();
  }
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const rows = [...$("list").querySelectorAll("button")], at = rows.findIndex((one) => one.ariaCurrent);
  const i = number("i") + step;
  if (at >= 0) (rows[at + step] ?? (step > 0 && !$("list-more").hidden ? $("list-more") : rows[at])).click();
  else if (i >= 0 && i < info.sets[number("set")].n_items) go({ ...NO_ITEM, i });
});

// Items.

async function showItems() {
  const { set = 0, sort = "", by = "text", q = "", start = sort && !q ? "" : 0 } = state;
  const wanted = { set, by, q, order: sort };
  for (const [name, value] of Object.entries({ set, sort, by, q, start })) $(name).value = value;
  $("of-order").hidden = q !== "" || !info.sets[number("set")].has_lengths;
  $("source").value = info.sources.findLast((one) => one.first <= Number(start))?.first;
  $("of-source").hidden = number("set") !== 0 || info.sources.length < 2;
  const key = JSON.stringify({ ...wanted, start });
  if (key !== listed) {
    listed = key;
    $("list").replaceChildren();
    $("list-more").hidden = true;
    await fill("list", start === "" ? undefined : start, (from) => ask(q ? "search" : "items", { ...wanted, start: from }), (found) => found.rows.map(row));
  }
  const isChosen = state.i !== undefined; // otherwise the first item of the list is shown
  if (!isChosen) state = { ...state, ...$("list").querySelector("button")?.place };
  for (const one of $("list").querySelectorAll("button")) one.ariaCurrent = one.place.i === state.i ? "true" : null;
  $("list").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  $("item").hidden = state.i === undefined;
  if (state.i === undefined) return;
  await showItem(info.sets[number("set")].kind.slice(0, -1));
  if (!isChosen) return;
  if ($("item").getBoundingClientRect().top > innerHeight / 2) $("item").scrollIntoView();
  $("tokens").querySelector(".found")?.focus();
}

function row(one) {
  const element = made("li"), button = made("button"), text = made("span");
  const [before, match, after] = one.around;
  text.append(before, ...(match === undefined ? [] : [made("mark", match), after]));
  button.type = "button";
  button.append(made("small", one.head), text);
  button.place = { i: String(one.i), ...place(one.position) };
  button.onclick = () => go(button.place);
  element.append(button);
  return element;
}

/** The parts of the address for a position in an item. */
const place = (position) => ({ at: position - (position % step()) || undefined, token: position });

async function showItem(kind) {
  const mine = state, asked = { set: number("set"), i: number("i"), at: number("at") };
  const found = await ask("item", { ...asked, n: step() });
  const end = found.at + found.ids.length;
  $("title").textContent = `${kind} ${words(found.i)}`;
  $("facts").replaceChildren(...Object.entries(found.facts).flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
  $("before").hidden = found.at === 0;
  $("behind").hidden = end >= found.n_tokens;
  $("part").textContent = found.ids.length === found.n_tokens ? `${words(end)} tokens`
    : `tokens ${words(found.at)} to ${words(end - 1)} of ${words(found.n_tokens)}, from 0`;
  $("as-text").hidden = found.text === null;
  $("text").textContent = found.text ?? "";
  $("all").hidden = found.n_tokens <= TOKENS_N;
  $("all").textContent = state.n ? `${words(TOKENS_N)} at a time` : found.n_tokens > TOKENS_MAX ? `${words(TOKENS_MAX)} at a time` : "All tokens";
  showTokens($("tokens"), found, state.token === undefined ? -1 : number("token") - found.at, kind === "sequence");
  if (!info.has_links) return;
  const { rows, n_left_out } = await ask("links", asked);
  if (state !== mine) return;
  const n = `${words(rows.length + n_left_out)}${n_left_out ? `, of which ${words(rows.length)} are listed` : ""}`;
  $("linked").firstChild.textContent = asked.set ? `Documents here: ${n}` : `Places in the file sets: ${n}`;
  $("links").replaceChildren(...rows.map((one) => linked(one, asked)));
  $("linked").hidden = false;
}

/** A link from an item of a file set to a document in it, or from a document to such an item. */
function linked(one, asked) {
  const element = made("li"), link = made("a"), { name, kind } = info.sets[asked.set || one.set];
  const range = (first) => `tokens ${words(first)} to ${words(first + one.n_tokens - 1)}`;
  const sequence = kind === "sequences" ? `document ${words(one.number)} of sequence ${words(one.item)}` : `document ${words(one.item)}`;
  link.textContent = asked.set ? `${sequence}: ${one.id}` : `${sequence} of ${name}`;
  const position = asked.set ? one.start : one.position;
  link.href = `#${parameters({ page: "items", set: one.set, start: one.i, i: one.i, n: state.n, ...(position ? place(position) : {}) })}`;
  element.append(link, ` ${range(one.position)}`, one.n_tokens < one.n_of_document ? `, which are ${range(one.start)} of its ${words(one.n_of_document)}` : "");
  return element;
}

const NO_ITEM = { i: undefined, at: undefined, token: undefined };
$("set").onchange = () => go({ ...NO_ITEM, set: $("set").value, start: undefined });
$("start").onchange = () => go({ ...NO_ITEM, start: $("start").value || undefined });
$("sort").onchange = () => go({ ...NO_ITEM, sort: $("sort").value || undefined, start: undefined });
$("source").onchange = () => go({ ...NO_ITEM, start: $("source").value, q: undefined });
$("before").onclick = () => go({ at: Math.max(0, number("at") - step()), token: undefined });
$("behind").onclick = () => go({ at: number("at") + step(), token: undefined });
$("all").onclick = () => go({ n: state.n ? undefined : TOKENS_MAX, at: undefined, token: undefined });

// Vocabulary.

async function showVocabulary() {
  const { q = "", order = "id" } = state;
  $("token").value = q;
  $("order").value = order;
  $("rows").replaceChildren();
  await fill("rows", 0, (start) => ask("vocabulary", { start, q, order }), (found) => found.ids.map((id, k) => {
    const [text, bytes, isSpecial] = found.tokens[id];
    const element = made("tr"), token = made("td"), find = made("td"), link = made("a", "Find");
    token.append(made("code", text.replaceAll("\n", "")), isSpecial ? " special" : "");
    link.href = `#${new URLSearchParams({ page: "items", by: "token id", q: id })}`;
    link.ariaLabel = `Find token ${id}`;
    find.append(link);
    element.append(made("td", id), made("td", found.counts[k]?.toLocaleString("en") ?? "–"), token, made("td", bytes ?? ""), find);
    return element;
  }));
}

$("order").onchange = () => go({ order: $("order").value });

// Encode.

async function showEncoded() {
  const mine = ++n_asked;
  const found = await ask("encode", { text: $("typed").value, special: $("special").checked ? "allow" : "as_text" });
  if (mine !== n_asked) return;
  $("encoded").replaceChildren(...found.by.map((one) => {
    const section = made("section"), box = made("div", one.error, "tokens"), n = one.ids?.length;
    section.append(made("h2", `${one.name}${n ? `: ${words(n)} tokens, ${(found.n_bytes / n).toFixed(2)} bytes each` : ""}`), box);
    if (!one.error) showTokens(box, one);
    return section;
  }));
  if (found.by.length < 2) $("encoded").append(made("p", "`tokenmill view --other PATH` shows another tokenizer beside this one."));
}

$("typed").oninput = $("special").onchange = () => shown(showEncoded);

document.addEventListener("submit", (event) => {
  event.preventDefault();
  document.activeElement.blur(); // so that keys go through what was found
  if (state.page === "items") go({ ...NO_ITEM, by: $("by").value, q: $("q").value || undefined });
  else go({ q: $("token").value || undefined });
});

const PAGES = { items: showItems, vocabulary: showVocabulary, encode: showEncoded };

function show() {
  state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (!Object.hasOwn(PAGES, state.page)) state.page = "items";
  for (const name of Object.keys(PAGES)) $(name).hidden = name !== state.page;
  for (const link of document.querySelectorAll("nav a")) link.ariaCurrent = link.hash === `#page=${state.page}` ? "page" : null;
  if (state.text !== undefined) $("typed").value = state.text;
  shown(PAGES[state.page]);
}

shown(async () => {
  info = await ask("info");
  $("name").textContent = info.name;
  document.title = `${info.name} – tokenmill view`;
  $("about").textContent = info.about;
  $("notes").replaceChildren(...info.notes.map((note) => made("li", note)));
  $("set").replaceChildren(...info.sets.map((one, k) => new Option(`${one.name} (${words(one.n_items)})`, k)));
  $("source").replaceChildren(...info.sources.map((one) => new Option(one.name || "data/raw", one.first)));
  window.onhashchange = show;
  show();
});
