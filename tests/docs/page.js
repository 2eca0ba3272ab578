// Rules for a page of the site: it fits the screen, and is accessible. Returns what breaks them.
() => {
  const problems = [], all = [...document.querySelectorAll("body *")];
  const say = (node) => `${node.tagName} ${node.className} ${node.textContent.trim().slice(0, 40)}`;
  const inside = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > inside) problems.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  if (!document.documentElement.lang) problems.push("no language");
  if (!document.title) problems.push("no title");
  if (document.querySelectorAll("h1").length !== 1) problems.push("there is not one h1");
  for (const node of document.querySelectorAll("img:not([alt])")) problems.push(`no alternative text: ${node.src}`);
  for (const node of document.querySelectorAll("a[href], button")) {
    const name = node.textContent.trim() || node.getAttribute("aria-label") || node.title || node.querySelector("img[alt], svg[aria-label], title");
    if (!name && node.getClientRects().length) problems.push(`no name: ${say(node)}`);
  }
  for (const node of document.querySelectorAll("figure, .scroll")) {
    if (node.scrollWidth > node.clientWidth + 1 && node.tabIndex < 0) problems.push(`cannot be scrolled with keys: ${say(node)}`);
  }
  const ids = all.map((node) => node.id).filter(Boolean);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) problems.push(`an id is used twice: ${id}`);
  return problems;
}
